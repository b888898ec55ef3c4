//! Digests in the text forms that stores expect.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// The MD5 digest of a body as the value of the `Content-MD5` header. Every store verifies the received body
/// against it.
pub(crate) fn content_md5(body: &[u8]) -> String {
    STANDARD.encode(Md5::digest(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_have_the_standard_text_forms() {
        assert_eq!(content_md5(b""), "1B2M2Y8AsgTpgAmY7PhCfg==");
        assert_eq!(hex(&[0, 0xab, 0xff]), "00abff");
    }
}
