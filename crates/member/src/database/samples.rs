//! A database as bbolt writes it, for tests: two beginnings, a root, and members in a tree of their own or within the
//! root.

const PAGE: usize = 4096;

/// A database that lists these members, each by the text of its key and of its value.
pub(crate) fn database(members: &[(&str, &str)], is_inline: bool) -> Vec<u8> {
    let mut file = vec![0; 7 * PAGE];
    let elements: Vec<_> = members
        .iter()
        .map(|(key, value)| (0, key.as_bytes(), value.as_bytes()))
        .collect();
    let bucket = if is_inline {
        let mut page = leaf(0, &elements);
        page.splice(..0, [0; 16]);
        page
    } else {
        // A branch over one leaf for each half.
        let (left, right) = elements.split_at(elements.len() / 2);
        put(&mut file, 5, &leaf(5, left));
        put(&mut file, 6, &leaf(6, right));
        let children = [(left.first(), 5_u64), (right.first(), 6)];
        let children: Vec<_> = children
            .iter()
            .filter_map(|(first, page)| Some((first.as_ref()?.1, *page)))
            .collect();
        put(&mut file, 4, &branch(4, &children));
        let mut header = vec![0; 16];
        header[..8].copy_from_slice(&4_u64.to_le_bytes());
        header
    };
    let root = leaf(
        3,
        &[
            (1, b"key", &[0; 32]),
            (1, b"members", &bucket),
            (1, b"meta", &[0; 32]),
        ],
    );
    put(&mut file, 3, &root);
    put(&mut file, 0, &meta(0, 12));
    put(&mut file, 1, &meta(1, 13));
    file
}

fn put(file: &mut [u8], number: usize, page: &[u8]) {
    file[number * PAGE..number * PAGE + page.len()].copy_from_slice(page);
}

fn header(number: u64, flags: u16, count: usize) -> Vec<u8> {
    let count = u16::try_from(count).expect("few");
    [
        &number.to_le_bytes()[..],
        &flags.to_le_bytes(),
        &count.to_le_bytes(),
        &[0; 4],
    ]
    .concat()
}

fn meta(number: u64, transaction: u64) -> Vec<u8> {
    let fields = [
        &0xed0c_daed_u32.to_le_bytes()[..],
        &2_u32.to_le_bytes(),
        &4096_u32.to_le_bytes(),
        &0_u32.to_le_bytes(),
        &3_u64.to_le_bytes(),
        &0_u64.to_le_bytes(),
        &2_u64.to_le_bytes(),
        &7_u64.to_le_bytes(),
        &transaction.to_le_bytes(),
    ]
    .concat();
    let sum = super::checksum(&fields);
    [&header(number, 4, 0)[..], &fields, &sum.to_le_bytes()].concat()
}

fn leaf(number: u64, elements: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let mut page = header(number, 2, elements.len());
    let mut data: Vec<u8> = Vec::new();
    for (index, (flags, key, value)) in elements.iter().enumerate() {
        let position = (elements.len() - index) * 16 + data.len();
        for field in [*flags, short(position), short(key.len()), short(value.len())] {
            page.extend(field.to_le_bytes());
        }
        data.extend([*key, value].concat());
    }
    page.extend(data);
    page
}

fn branch(number: u64, children: &[(&[u8], u64)]) -> Vec<u8> {
    let mut page = header(number, 1, children.len());
    let mut data: Vec<u8> = Vec::new();
    for (index, (key, child)) in children.iter().enumerate() {
        let position = (children.len() - index) * 16 + data.len();
        page.extend(short(position).to_le_bytes());
        page.extend(short(key.len()).to_le_bytes());
        page.extend(child.to_le_bytes());
        data.extend_from_slice(key);
    }
    page.extend(data);
    page
}

fn short(number: usize) -> u32 {
    u32::try_from(number).expect("small")
}
