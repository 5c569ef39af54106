/** The SDK is for servers, so it is not bundled. Node.js loads it directly. */
export default { serverExternalPackages: ["payintent-sdk"], turbopack: { root: import.meta.dirname } };
