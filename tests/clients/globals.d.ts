// The part of Node.js that the program uses.
declare const process: { argv: string[] };
