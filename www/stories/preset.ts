/** A whole sentence of the stories: what a sample continues unless told otherwise. */
export const storyPrompt = "one day shy fox found a red ball by the pond. ";
