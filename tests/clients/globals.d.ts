// The two things that the program takes from Node.js.
declare const process: { argv: string[] };
