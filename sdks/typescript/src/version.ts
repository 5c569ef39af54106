/** The version of this library, which is the version of the service that it was released with. */
export const VERSION = "1.0.0-rc.1";
/** The version of the API that this library speaks. */
export const API_VERSION = "0.9.9";
