// Characters that cannot be seen, that change the order of others, or that look like other letters. Pure.

import { isObject } from "./exact.js";

export type Piece =
  | { kind: "text"; text: string }
  | { kind: "hidden"; code: string; name: string }
  | { kind: "lookalike"; text: string; code: string; why: string };

const NAMES: Record<number, string> = {
  0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0b: "VT", 0x0c: "FF", 0x0d: "CR", 0x1b: "ESC", 0x7f: "DEL", 0x85: "NEL",
  0xa0: "NBSP", 0xad: "SHY", 0x034f: "CGJ", 0x061c: "ALM", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ", 0x200e: "LRM",
  0x200f: "RLM", 0x2028: "LSEP", 0x2029: "PSEP", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0x3000: "IDSP", 0xfeff: "BOM", 0xfffc: "OBJ",
};

/** Controls except tab and line feed, format, unassigned, private and surrogate characters, separators, other spaces,
 * and letters and selectors without a shape. */
const HIDDEN =
  /(?![\t\n ])[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\ufffc]|[\u{e0000}-\u{e0fff}]/u;
/** More marks on one letter than any orthography stacks. */
const STACKED_MARKS = /(?<=\p{M}{3})\p{M}/u;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;
const LATIN = /\p{Script=Latin}/u;
/** Scripts that are written together with Latin letters. */
const FOREIGN = /(?=\p{L})[^\p{Script=Latin}\p{Script=Common}\p{Script=Inherited}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}]/u;
/** Letters of other scripts that have the shape of Latin ones. */
const SHAPED_LIKE_LATIN = /^[аеорсухіјѕԁһԛԝѵӏАВЕЅІЈКМНОРСТУХԌԚԜΑΒΕΖΗΙΚΜΝΟΡΤΥΧονικρυ]+$/u;

function scriptName(letter: string): string {
  for (const script of ["Cyrillic", "Greek", "Armenian", "Cherokee", "Hebrew", "Arabic", "Coptic", "Georgian", "Lisu"]) {
    if (new RegExp(`\\p{Script=${script}}`, "u").test(letter)) return script;
  }
  return "another script";
}

export function codeOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Split text so that each character that could deceive a reader is a piece of its own. */
export function splitText(text: string): Piece[] {
  const lookalikes = findLookalikes(text);
  const pieces: Piece[] = [];
  let plain = "";
  const flush = () => {
    if (plain) pieces.push({ kind: "text", text: plain });
    plain = "";
  };
  let index = 0;
  for (const character of text) {
    const why = lookalikes.get(index);
    if (HIDDEN.test(character) || (index > 2 && STACKED_MARKS.test(text.slice(index - 3, index + character.length)))) {
      flush();
      pieces.push({ kind: "hidden", code: codeOf(character), name: NAMES[character.codePointAt(0) ?? -1] ?? "" });
    } else if (why !== undefined) {
      flush();
      pieces.push({ kind: "lookalike", text: character, code: codeOf(character), why });
    } else {
      plain += character;
    }
    index += character.length;
  }
  flush();
  return pieces;
}

/** Return text for places that hold nothing but text, such as the title of the page: hidden characters are their codes. */
export function visibleText(text: string): string {
  return splitText(text).map((piece) => (piece.kind === "hidden" ? `[${piece.code}]` : piece.text)).join("");
}

/** Return why a letter is not what it looks like, by its index. */
function findLookalikes(text: string): Map<number, string> {
  const found = new Map<number, string>();
  if (!/[^\0-\u02ff]/.test(text)) return found; // no script but Latin has letters there
  const hasLatin = LATIN.test(text);
  for (const { 0: word, index: start } of text.matchAll(WORD)) {
    const mixed = LATIN.test(word) && FOREIGN.test(word);
    const disguised = hasLatin && SHAPED_LIKE_LATIN.test(word);
    let at = start;
    for (const letter of word) {
      if ((mixed || disguised) && FOREIGN.test(letter)) {
        found.set(at, `${scriptName(letter)} in ${mixed ? "a word of" : "a text of"} Latin letters`);
      } else if (/[\uff21-\uff3a\uff41-\uff5a]|[\u{1d400}-\u{1d7ff}]/u.test(letter)) {
        found.set(at, `looks like “${letter.normalize("NFKC")}”`);
      }
      at += letter.length;
    }
  }
  return found;
}

export interface Deception {
  /** Where: a path such as `actions[6].payload.message`. */
  path: string;
  hidden: number;
  lookalikes: { text: string; code: string; why: string }[];
}

/** Return every string in a value that has hidden or look-alike characters, keys included. */
export function findDeceptions(value: unknown, path = ""): Deception[] {
  if (typeof value === "string") {
    const pieces = splitText(value);
    const hidden = pieces.filter((piece) => piece.kind === "hidden").length;
    const lookalikes = pieces.filter((piece) => piece.kind === "lookalike");
    return hidden + lookalikes.length > 0 ? [{ path, hidden, lookalikes }] : [];
  }
  if (Array.isArray(value)) return value.flatMap((item, index) => findDeceptions(item, `${path}[${index}]`));
  if (isObject(value)) {
    return Object.entries(value).flatMap(([key, item]) => {
      const below = path ? `${path}.${key}` : key;
      return [...findDeceptions(key, `name of ${below}`), ...findDeceptions(item, below)];
    });
  }
  return [];
}
