//! CRC-32C, as it runs on from record to record. Nothing else.

/// The polynomial of Castagnoli, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut byte = 0_u32;
    while index < table.len() {
        let mut remainder = byte;
        let mut bit = 0;
        while bit < 8 {
            let carry = remainder & 1 == 1;
            remainder >>= 1;
            if carry {
                remainder ^= POLYNOMIAL;
            }
            bit += 1;
        }
        table[index] = remainder;
        index += 1;
        byte += 1;
    }
    table
}

/// The checksum of what gave `before`, followed by `bytes`.
pub(super) fn extend(before: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        let [low, ..] = sum.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (sum >> 8)
    };
    !bytes.iter().fold(!before, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_published_checksum_and_runs_on() {
        assert_eq!(extend(0, b"123456789"), 0xe306_9283);
        assert_eq!(extend(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(extend(extend(0, b"1234"), b"56789"), 0xe306_9283);
    }
}
