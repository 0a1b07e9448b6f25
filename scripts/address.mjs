// Where the project lives on the web, such as "https://github.com/OWNER/NAME". Not decided yet: while it
// is undefined, the packed package is private and `npm publish` refuses. Everything that names the
// address (package.json's repository, homepage and bugs, README's links) is made of this line.
export const address = undefined;
