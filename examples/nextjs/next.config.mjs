/** The SDK is for servers: it is not bundled, Node.js loads it as it is. */
export default { serverExternalPackages: ["payintent-sdk"], turbopack: { root: import.meta.dirname } };
