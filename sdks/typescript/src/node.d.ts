// The part of Node.js that `testing.ts` uses, declared here so that the package does not depend on
// `@types/node`.

declare module "node:http" {
  interface Request extends AsyncIterable<Uint8Array> {
    readonly method?: string;
    readonly headers: Record<string, string | string[] | undefined>;
  }
  interface Response {
    writeHead(status: number, headers?: Record<string, string>): Response;
    end(): void;
  }
  interface Server {
    once(event: "error", listener: (error: Error) => void): Server;
    listen(port: number, host: string, listener: () => void): Server;
    address(): { port: number };
    close(listener: () => void): Server;
    closeAllConnections(): void;
  }
  export function createServer(handler: (request: Request, response: Response) => void): Server;
}

declare const process: { readonly env: Record<string, string | undefined> };
