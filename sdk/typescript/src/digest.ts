import { sha256 } from "@noble/hashes/sha2.js";

/**
 * Return the SHA-256 of bytes in lowercase hex.
 *
 * Browsers offer Web Crypto only in secure contexts. A page on plain HTTP uses the bundled implementation.
 */
export async function sha256Hex(bytes: Uint8Array): Promise<string> {
  const subtle = globalThis.crypto?.subtle;
  const digest = subtle
    ? new Uint8Array(await subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>))
    : sha256(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
