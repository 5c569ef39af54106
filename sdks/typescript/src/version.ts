/** The version of this library, and of the service release that contains it. */
export const VERSION = "1.0.0-rc.1";
/** The version of the API that this library uses. */
export const API_VERSION = "0.9.9";
