//! Messages in protobuf's encoding, as far as etcd's files have them: numbers and runs of bytes.

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A number in groups of seven bits, and how many bytes it took.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7F);
        // Of the tenth byte only the lowest bit fits.
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

/// The fields of a message with their numbers; none if it is not one.
pub(super) fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let (tag, taken) = number(bytes)?;
        bytes = &bytes[taken..];
        let (value, taken) = number(bytes)?;
        bytes = &bytes[taken..];
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
    fn numbers_are_read_up_to_the_largest_and_not_beyond() {
        assert_eq!(number(&[0x96, 0x01, 0xFF]), Some((150, 2)));
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(number(&largest), Some((u64::MAX, 10)));
        let mut beyond = largest;
        beyond[9] = 0x02;
        assert_eq!(number(&beyond), None);
        assert_eq!(number(&[0x80; 11]), None);
        assert_eq!(number(&[]), None);
    }

    #[test]
    fn what_is_cut_or_of_another_kind_is_no_message() {
        assert_eq!(
            fields(&[0x08, 0x07, 0x12, 0x01, b'x']),
            Some(vec![(1, Field::Number(7)), (2, Field::Bytes(b"x"))])
        );
        for wrong in [
            &[0x08][..],
            &[0x12, 0x02, b'x'],
            &[0x00, 0x00],
            &[0x0D, 0, 0, 0, 0],
        ] {
            assert_eq!(fields(wrong), None, "{wrong:?}");
        }
    }
}
