/** Returns an environment variable. Throws an error if it is not set. */
export function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} must be set in the environment`);
  return value;
}
