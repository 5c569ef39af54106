// Prints the CLDR data of the checkout's languages, from the copy of CLDR in Node.js.
// The argument is JSON: languages, countries, currencies, countries with short names, and readings.

const asked = JSON.parse(process.argv[2]);
const NUMBER = 1234567.5;

function names(tag, type, codes) {
  const long = new Intl.DisplayNames(tag, { type });
  const short = new Intl.DisplayNames(tag, { type, style: "short" });
  return Object.fromEntries(
    codes.map((code) => [code, (asked.short.includes(code) ? short : long).of(code)]),
  );
}

/** Sorts by the language's rules. A reading replaces a name that does not show its pronunciation. */
function sorted(tag, countries) {
  const { compare } = new Intl.Collator(tag);
  const sound = (code) => asked.readings[tag]?.[code] ?? countries[code];
  return Object.keys(countries).sort((one, other) => compare(sound(one), sound(other)));
}

function language(tag) {
  const countries = names(tag, "region", asked.countries);
  const parts = new Intl.NumberFormat(tag, { numberingSystem: "latn" }).formatToParts(NUMBER);
  const part = (type) => parts.find((one) => one.type === type).value;
  return {
    decimal: part("decimal"),
    group: part("group"),
    countries: sorted(tag, countries).map((code) => [code, countries[code]]),
    currencies: names(tag, "currency", asked.currencies),
  };
}

process.stdout.write(JSON.stringify(asked.tags.map(language)));
