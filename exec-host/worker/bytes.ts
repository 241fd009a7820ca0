/** The bytes of a Buffer, typed array, DataView or ArrayBuffer; null for anything else. */
export function toBytes(value: unknown): Buffer | null {
  if (Buffer.isBuffer(value)) {
    return value;
  }
  if (ArrayBuffer.isView(value)) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  }
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) {
    return Buffer.from(value);
  }
  return null;
}
