// Prints the CLDR data of the checkout's languages, from the copy of CLDR in Node.js.
// The argument is JSON: languages, countries, currencies, countries with short names, and readings.

const request = JSON.parse(process.argv[2]);
const NUMBER = 1234567.5;

function readNames(tag, type, codes) {
  const long = new Intl.DisplayNames(tag, { type });
  const short = new Intl.DisplayNames(tag, { type, style: "short" });
  return Object.fromEntries(
    codes.map((code) => [code, (request.short.includes(code) ? short : long).of(code)]),
  );
}

/** Sorts by the language's rules. A reading replaces a name that does not show its pronunciation. */
function sortCodes(tag, countries) {
  const { compare } = new Intl.Collator(tag);
  const getReading = (code) => request.readings[tag]?.[code] ?? countries[code];
  return Object.keys(countries).sort((first, second) => compare(getReading(first), getReading(second)));
}

function describeLanguage(tag) {
  const countries = readNames(tag, "region", request.countries);
  const parts = new Intl.NumberFormat(tag, { numberingSystem: "latn" }).formatToParts(NUMBER);
  const part = (type) => parts.find((item) => item.type === type).value;
  return {
    decimal: part("decimal"),
    group: part("group"),
    countries: sortCodes(tag, countries).map((code) => [code, countries[code]]),
    currencies: readNames(tag, "currency", request.currencies),
  };
}

process.stdout.write(JSON.stringify(request.tags.map(describeLanguage)));
