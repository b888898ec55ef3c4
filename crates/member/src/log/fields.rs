//! The fields of a message as protocol buffers encode it, one after another, with no knowledge of what they mean. What
//! is no message has no fields from there on.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes, which nothing here asks for.
    Fixed,
}

/// The fields of a message.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    is_whole: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            is_whole: true,
        }
    }

    fn read(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return None,
        };
        (key >> 3 > 0).then_some((key >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || !self.is_whole {
            return None;
        }
        let field = self.read();
        self.is_whole = field.is_some();
        field
    }
}

/// All fields; `None` if the message is malformed anywhere.
pub(super) fn all(message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Fields::of(message);
    let all: Vec<_> = fields.by_ref().collect();
    fields.is_whole.then_some(all)
}

/// Whether it is a message to its end.
pub(super) fn is_message(message: &[u8]) -> bool {
    let mut fields = Fields::of(message);
    fields.by_ref().for_each(drop);
    fields.is_whole
}

/// The first value of a field that is a number. `None` if there is none, or none before the message becomes malformed.
pub(super) fn number(message: &[u8], wanted: u64) -> Option<u64> {
    Fields::of(message).find_map(|field| match field {
        (field, Value::Number(number)) if field == wanted => Some(number),
        _ => None,
    })
}

/// The first value of a field that is bytes. `None` if there is none, or none before the message becomes malformed.
pub(super) fn bytes(message: &[u8], wanted: u64) -> Option<&[u8]> {
    Fields::of(message).find_map(|field| match field {
        (field, Value::Bytes(bytes)) if field == wanted => Some(bytes),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_encoding_are_read_in_order() {
        let message = [
            8, 0x96, 1, 0x12, 2, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let fields = all(&message).expect("a message");
        assert_eq!(
            fields,
            [
                (1, Value::Number(150)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed),
                (4, Value::Fixed)
            ]
        );
        assert_eq!((number(&message, 1), number(&message, 2)), (Some(150), None));
        assert_eq!(bytes(&message, 2), Some(&b"hi"[..]));
        assert_eq!(all(&[]), Some(vec![]));
    }

    #[test]
    fn what_is_no_message_is_none() {
        for broken in [
            &[8][..],
            &[0x12, 5, 1],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x80; 11],
            &[0, 0],
            &[0x1d, 1],
            &[0x54],
        ] {
            assert_eq!(all(broken), None, "{broken:?}");
        }
    }
}
