//! Parses the subset of the protobuf encoding that etcd's files use: varints and length-delimited fields.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Parses a varint. Returns the number and how many bytes it takes.
pub(super) fn parse_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7F);
        // Only the lowest bit of the tenth byte fits into 64 bits.
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Parses a message into field numbers and values. Returns `None` if it is invalid.
pub(super) fn parse_fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, used) = parse_varint(bytes)?;
        bytes = &bytes[used..];
        let (value, used) = parse_varint(bytes)?;
        bytes = &bytes[used..];
        let field = match tag & 7 {
            0 => Field::Number(value),
            2 => {
                let (run, rest) = bytes.split_at_checked(usize::try_from(value).ok()?)?;
                bytes = rest;
                Field::Bytes(run)
            }
            _ => return None,
        };
        if tag >> 3 == 0 {
            return None;
        }
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_parsed_up_to_64_bits() {
        assert_eq!(parse_varint(&[0x96, 0x01, 0xFF]), Some((150, 2)));
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(parse_varint(&largest), Some((u64::MAX, 10)));
        let mut beyond = largest;
        beyond[9] = 0x02;
        assert_eq!(parse_varint(&beyond), None);
        assert_eq!(parse_varint(&[0x80; 11]), None);
        assert_eq!(parse_varint(&[]), None);
    }

    #[test]
    fn truncated_and_unsupported_messages_are_rejected() {
        assert_eq!(
            parse_fields(&[0x08, 0x07, 0x12, 0x01, b'x']),
            Some(vec![(1, Field::Number(7)), (2, Field::Bytes(b"x"))])
        );
        for wrong in [
            &[0x08][..],
            &[0x12, 0x02, b'x'],
            &[0x00, 0x00],
            &[0x0D, 0, 0, 0, 0],
        ] {
            assert_eq!(parse_fields(wrong), None, "{wrong:?}");
        }
    }
}
