// Lists the web platform members that at least one supported browser lacks, from the browserslist
// versions in package.json and MDN's compatibility table. As a script, it prints the members as
// JSON, so that a test can remove them from a page.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

/** The browsers' names in browserslist and in MDN's table. */
const BROWSERS = {
  chrome: "chrome",
  edge: "edge",
  firefox: "firefox",
  ios_saf: "safari_ios",
  safari: "safari",
  samsung: "samsunginternet_android",
};

/** @param {string} folder in which the packages are installed */
export function members(folder) {
  const require = createRequire(pathToFileURL(`${folder}/package.json`));
  const oldest = oldestVersions(require("browserslist"), require(`${folder}/package.json`).browserslist);
  const { api, javascript } = require("@mdn/browser-compat-data");
  const lacks = (feature) => Object.entries(oldest).some(([browser, version]) => isLater(feature.support[browser], version));
  const owners = { ...api, ...javascript.builtins };
  const { Intl } = javascript.builtins;
  for (const [name, feature] of Object.entries(Intl)) if (name !== "__compat") owners[`Intl.${name}`] = feature;
  const entries = [];
  for (const [owner, { __compat: ownCompat, ...features }] of Object.entries(owners)) {
    if (!ownCompat) continue;
    entries.push({ owner, name: "", isStatic: true, isNew: lacks(ownCompat) });
    for (const [key, { __compat: compat }] of Object.entries(features)) {
      if (!compat || !/^[A-Za-z]\w*$/.test(key) || key === owner || /_(event|permission|support)$/.test(key)) continue;
      const isStatic = key.endsWith("_static") || ["Intl", "Math", "Atomics", "JSON", "Reflect"].includes(owner);
      entries.push({ owner, name: key.replace(/_static$/, ""), isStatic, isNew: lacks(compat) });
    }
  }
  return entries;
}

/** @param {any} browserslist @param {string[]} queries @returns {Record<string, number[]>} */
function oldestVersions(browserslist, queries) {
  const oldest = {};
  for (const item of browserslist(queries)) {
    const [name, version] = item.split(" ");
    const browser = BROWSERS[name];
    if (!browser) throw new Error(`the name of ${name} in MDN's table is unknown`);
    const numbers = version.split("-")[0].split(".").map(Number);
    if (!numbers.some(Number.isNaN) && (!oldest[browser] || compare(numbers, oldest[browser]) < 0)) oldest[browser] = numbers;
  }
  return oldest;
}

/** Returns whether this version of a browser lacks the feature. */
function isLater(support, version) {
  const [newest] = [support ?? []].flat().filter((statement) => !statement.flags && !statement.prefix && !statement.alternative_name);
  if (!newest?.version_added) return Boolean(support); // a browser that is not listed is ignored
  if (newest.version_added === "preview") return true;
  return compare(newest.version_added.replace("≤", "").split(".").map(Number), version) > 0;
}

function compare(left, right) {
  return left[0] - right[0] || (left[1] ?? 0) - (right[1] ?? 0);
}

if (process.argv[1]?.endsWith("browsers.mjs")) {
  const [, , folder] = process.argv;
  console.log(JSON.stringify(members(folder).filter(({ isNew }) => isNew)));
}
