// Show the local time of each timestamp on hover. The page itself shows UTC.
const format = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "long",
});

for (const time of document.querySelectorAll("time[datetime]")) {
  const date = new Date(time.getAttribute("datetime") ?? "");
  if (!Number.isNaN(date.getTime())) time.setAttribute("title", format.format(date));
}
