/** TokenText: the text of every token that the stand-ins of the gateway's bench emit, and how it is found in a stream, however that is spaced. */

export const TOKEN_TEXT = ' tok';

export const TOKEN_MARKER = JSON.stringify(TOKEN_TEXT);
