//! CRC-32C, which etcd's own tools print as the hash of a snapshot. Not for anything that must be safe from forgery.

/// Eight tables, so that eight bytes are taken at once.
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

/// A checksum of bytes that come in pieces.
#[derive(Clone, Debug)]
pub struct Crc32c(u32);

impl Default for Crc32c {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl Crc32c {
    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        let of = |table: usize, byte: u8| TABLES[table][usize::from(byte)];
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let [a, b, c, d] = self.0.to_le_bytes();
            self.0 = of(7, eight[0] ^ a)
                ^ of(6, eight[1] ^ b)
                ^ of(5, eight[2] ^ c)
                ^ of(4, eight[3] ^ d)
                ^ of(3, eight[4])
                ^ of(2, eight[5])
                ^ of(1, eight[6])
                ^ of(0, eight[7]);
        }
        for byte in rest {
            let [low, ..] = self.0.to_le_bytes();
            self.0 = (self.0 >> 8) ^ of(0, low ^ byte);
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
    fn the_checksum_is_the_known_one_in_any_pieces() {
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
