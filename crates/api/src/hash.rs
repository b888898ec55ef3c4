//! Hashes that are the same on every machine and in every version. Pure.

use std::io;

use serde_json::Value;

/// Hashes a document independently of the order of its fields.
pub fn hash(document: &Value) -> String {
    let mut hasher = Fnv::new();
    hash_value(&mut hasher, document);
    format!("{:016x}", hasher.0)
}

/// FNV-1a. Unlike the standard library's hasher, it gives the same result on every machine and in every version.
#[derive(Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self::new()
    }
}

impl Fnv {
    /// Nothing is hashed yet.
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0
    }

    /// Adds these bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hash_value(hasher: &mut Fnv, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort_unstable();
            hasher.bytes(b"{");
            for name in names {
                hasher.bytes(name.as_bytes());
                hasher.bytes(&[0]);
                hash_value(hasher, &fields[name]);
            }
            hasher.bytes(b"}");
        }
        Value::Array(items) => {
            hasher.bytes(b"[");
            for item in items {
                hash_value(hasher, item);
            }
            hasher.bytes(b"]");
        }
        plain => {
            serde_json::to_writer(&mut *hasher, plain).expect("hashing accepts any input");
            hasher.bytes(&[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_values_and_structure_but_not_on_order() {
        let hash_of = |text: &str| hash(&serde_json::from_str(text).unwrap());
        assert_eq!(hash_of(r#"{"a": 1, "b": [2]}"#), hash_of(r#"{"b": [2], "a": 1}"#));
        let texts = [
            r#"{"a":1,"b":[2]}"#,
            r#"{"a":1,"b":[3]}"#,
            r#"{"a":1}"#,
            r#"["a",1]"#,
            r#"["a1"]"#,
            r#"["1"]"#,
            "[1]",
        ];
        let different: std::collections::BTreeSet<_> = texts.into_iter().map(hash_of).collect();
        assert_eq!(different.len(), texts.len());
        // Clusters store this hash: changing the algorithm would apply every object once.
        assert_eq!(hash_of(r#"{"a": 1, "b": [2]}"#), "7fd2c65e618cc9dd");
    }
}
