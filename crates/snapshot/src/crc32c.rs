//! CRC-32C, the checksum that etcd's tools print as the hash of a snapshot. It detects accidental changes,
//! not forgery.

/// Eight lookup tables, to process eight bytes at once (slicing-by-8).
static TABLES: [[u32; 256]; 8] = tables();
const POLYNOMIAL: u32 = 0x82F6_3B78;

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "a byte, counted in usize")]
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (if crc & 1 == 1 { POLYNOMIAL } else { 0 });
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        let mut table = 1;
        while table < 8 {
            let before = tables[table - 1][byte];
            tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// An incremental CRC-32C checksum.
#[derive(Clone, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl Crc32c {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let lookup = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let [a, b, c, d] = self.0.to_le_bytes();
            self.0 = lookup(7, eight[0] ^ a)
                ^ lookup(6, eight[1] ^ b)
                ^ lookup(5, eight[2] ^ c)
                ^ lookup(4, eight[3] ^ d)
                ^ lookup(3, eight[4])
                ^ lookup(2, eight[5])
                ^ lookup(1, eight[6])
                ^ lookup(0, eight[7]);
        }
        for byte in rest {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = (self.0 >> 8) ^ lookup(0, low ^ byte);
        }
    }

    /// The checksum of all bytes so far.
    pub fn value(&self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_correct_for_any_chunks() {
        let text = b"123456789";
        for cut in 0..text.len() {
            let mut crc = Crc32c::default();
            crc.update(&text[..cut]);
            crc.update(&text[cut..]);
            assert_eq!(crc.value(), 0xE306_9283, "cut at {cut}");
        }
        assert_eq!(Crc32c::default().value(), 0);
    }
}
