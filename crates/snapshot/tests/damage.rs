//! Damages a real file in every known way. A full check must find the damage and report its kind and
//! location.

mod support;

use etcd_operator_snapshot::database::{Damage, DamageKind, Error};
use support::{DamagedFile, check_database};

/// All damage that a full check finds, including damage that prevents it.
fn find_damage(bytes: &[u8]) -> Vec<Damage> {
    match check_database(bytes) {
        Ok(audit) => audit.findings.list,
        Err(Error::Damage(damage)) => vec![damage],
        Err(Error::Read(error)) => panic!("{error}"),
    }
}

/// Damages a file, and expects damage of this kind whose message contains these words.
fn check(
    name: &str,
    words: &str,
    is_kind: impl Fn(&DamageKind) -> bool,
    damage_file: impl FnOnce(&mut DamagedFile),
) {
    let mut damaged = DamagedFile::new(name);
    assert_eq!(find_damage(&damaged.bytes), [], "{name} is whole");
    damage_file(&mut damaged);
    let found = find_damage(&damaged.bytes);
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let wanted = found.iter().zip(&lines).find(|(damage, _)| is_kind(&damage.kind));
    let (_, line) = wanted.unwrap_or_else(|| panic!("not found: {words}; but {lines:#?}"));
    assert!(line.contains(words), "{line:?} does not say {words:?}");
}

macro_rules! is {
    ($kind:ident) => {
        |kind: &DamageKind| matches!(kind, DamageKind::$kind { .. })
    };
}

const FILE: &str = "3.5-full";
const LISTED: &str = "3.2-full";
const SYNCED: &str = "3.5-synced";

#[test]
fn a_wrong_file_size_is_detected() {
    check(FILE, "the file: 5000 bytes are too few", is!(TooShort), |b| {
        b.bytes.truncate(5000);
    });
    check(FILE, "the file: ends after", is!(Truncated), |b| {
        let end = b.bytes.len() - 32 - 2 * b.size;
        b.bytes.truncate(end);
    });
    check(FILE, "a snapshot of these pages has", is!(TooLong), |b| {
        let hash = b.bytes.split_off(b.bytes.len() - 32);
        b.bytes.extend(vec![0; b.size]);
        b.bytes.extend(hash);
    });
}

#[test]
fn damaged_meta_pages_are_detected() {
    check(FILE, "page 0: has the checksum", is!(Checksum), |b| {
        b.bytes[16 + 50] ^= 4;
    });
    check(FILE, "page 1: has the checksum", is!(Checksum), |b| {
        let offset = b.size + 16 + 20;
        b.bytes[offset] ^= 4;
    });
    check(FILE, "page 0: has the wrong magic number", is!(Magic), |b| {
        b.put(16, [0; 4]);
    });
    check(FILE, "page 0: has format version 3", is!(Version), |b| {
        b.put_in_metas(4, [3, 0, 0, 0]);
    });
    check(
        FILE,
        "page 0: has an invalid page size of 5000 bytes",
        is!(PageSize),
        |b| {
            b.put_in_metas(8, 5000_u32.to_le_bytes());
        },
    );
    check(FILE, "page 0: has root page 99999", is!(RootPage), |b| {
        b.put_in_metas(16, 99_999_u64.to_le_bytes());
    });
    check(FILE, "page 0: has freelist page 1", is!(FreelistPage), |b| {
        b.put_in_metas(32, 1_u64.to_le_bytes());
    });
    check(
        FILE,
        "page 1: differs from the other meta page",
        is!(MetasDiffer),
        |b| {
            let root = b.u64(16 + 16);
            let offset = b.size + 16 + 16;
            b.put(offset, (root + 1).to_le_bytes());
            b.fix_checksums();
        },
    );
    check(FILE, "page 1: has the page number 7", is!(WrongId), |b| {
        let offset = b.size;
        b.put(offset, 7_u64.to_le_bytes());
    });
    check(
        FILE,
        "page 0: has the unknown type 0x0001",
        is!(UnknownType),
        |b| b.put(8, [1, 0]),
    );
}

#[test]
fn wrong_page_references_and_types_are_detected() {
    let at_child = |b: &DamagedFile, index: usize| DamagedFile::element(b.root("key"), index) + 8;
    check(
        FILE,
        "element 1 of bucket \"key\": refers to page 4000000",
        is!(OutOfBounds),
        |b| {
            b.put(at_child(b, 1), 4_000_000_u64.to_le_bytes());
        },
    );
    check(
        FILE,
        "refers to page 1, which is a meta page",
        is!(RefersToMeta),
        |b| {
            b.put(at_child(b, 1), 1_u64.to_le_bytes());
        },
    );
    check(
        FILE,
        "of bucket \"key\": has the page number 77777",
        is!(WrongId),
        |b| {
            b.put(b.leaves()[1], 77_777_u64.to_le_bytes());
        },
    );
    check(
        FILE,
        "of bucket \"key\": has the unknown type 0x0040",
        is!(UnknownType),
        |b| {
            b.put(b.leaves()[1] + 8, [0x40, 0]);
        },
    );
    check(FILE, "is a meta page instead of", is!(WrongType), |b| {
        b.put(b.leaves()[1] + 8, [4, 0]);
    });
    check(FILE, "is a freelist page instead of", is!(WrongType), |b| {
        b.put(b.leaves()[1] + 8, [16, 0]);
    });
    check(
        FILE,
        "of bucket \"key\": is referenced twice",
        is!(ReferencedTwice),
        |b| {
            let other = b.u64(at_child(b, 0));
            b.put(at_child(b, 1), other.to_le_bytes());
        },
    );
    check(FILE, "of bucket \"key\": refers to itself", is!(Cycle), |b| {
        let root = b.u64(b.root("key"));
        b.put(at_child(b, 1), root.to_le_bytes());
    });
    check(FILE, "which is in use", is!(Overlap), |b| {
        // Extends the first leaf page over the next one.
        let (leaves, size) = (b.leaves(), b.size);
        let (first, second) = (
            leaves[0] / size,
            leaves[1..].iter().map(|leaf| leaf / size).min().expect("more"),
        );
        let more = u32::try_from(second.abs_diff(first)).expect("small");
        let (from, offset) = if first < second {
            (first, leaves[0])
        } else {
            (second, second * size)
        };
        assert!(from > 1);
        b.put(offset + 12, more.to_le_bytes());
    });
    check(
        FILE,
        "has 100000 overflow pages, beyond the last page",
        is!(OverflowBeyond),
        |b| {
            b.put(b.leaves()[0] + 12, 100_000_u32.to_le_bytes());
        },
    );
    check(FILE, "of a page of 4096", is!(ElementBeyondPage), |b| {
        let large = largest_leaf(b);
        b.put(large + 12, 0_u32.to_le_bytes());
    });
    check(FILE, "its content needs", is!(OverflowLength), |b| {
        // Extends a leaf page over the free page that follows it.
        let used: Vec<usize> = b.structure().into_iter().map(|offset| offset / b.size).collect();
        let is_followed = |leaf: &usize| used.contains(&((leaf / b.size) + 1)) || b.u32(leaf + 12) > 0;
        let leaf = b
            .leaves()
            .into_iter()
            .find(|leaf| !is_followed(leaf))
            .expect("there is one");
        b.put(leaf + 12, 1_u32.to_le_bytes());
    });
}

/// The leaf page with the largest value.
fn largest_leaf(b: &DamagedFile) -> usize {
    let leaves = b.leaves();
    leaves
        .into_iter()
        .max_by_key(|leaf| b.u32(leaf + 12))
        .expect("there are leaves")
}

#[test]
fn damaged_elements_are_detected() {
    let leaf = |b: &DamagedFile| b.leaves()[1];
    let second = |b: &DamagedFile| DamagedFile::element(b.leaves()[1], 1);
    check(FILE, "has 65535 elements, but only", is!(ElementCount), |b| {
        b.put(leaf(b) + 10, [0xFF, 0xFF]);
    });
    check(
        FILE,
        "element 0 of bucket \"key\": begins at byte",
        is!(ElementGap),
        |b| {
            let count = b.u16(leaf(b) + 10);
            b.put(leaf(b) + 10, (count - 1).to_le_bytes());
        },
    );
    check(FILE, "is a branch page without children", is!(EmptyBranch), |b| {
        b.put(b.root("key") + 10, [0, 0]);
    });
    check(FILE, "is a leaf page without keys", is!(EmptyLeaf), |b| {
        b.put(leaf(b) + 10, [0, 0]);
    });
    check(FILE, "is a leaf page without keys", is!(EmptyLeaf), |b| {
        // Turns the root page of a bucket into a leaf page.
        b.put(b.root("key") + 8, [2, 0, 0, 0]);
    });
    check(
        FILE,
        "element 1 of bucket \"key\": has the unknown flags 0x00000002",
        is!(ElementFlags),
        |b| {
            b.put(second(b), [2, 0, 0, 0]);
        },
    );
    check(
        FILE,
        "element 1 of bucket \"key\": is a nested bucket",
        is!(NestedBucket),
        |b| {
            b.put(second(b), [1, 0, 0, 0]);
        },
    );
    check(FILE, "of a page of", is!(ElementBeyondPage), |b| {
        let last = DamagedFile::element(leaf(b), b.count(leaf(b)) - 1);
        b.put(last + 12, 100_000_u32.to_le_bytes());
    });
    check(
        FILE,
        "element 1 of bucket \"key\": begins at byte",
        is!(ElementGap),
        |b| {
            let position = b.u32(second(b) + 4);
            b.put(second(b) + 4, (position + 1).to_le_bytes());
        },
    );
    check(FILE, "has an empty key", is!(EmptyKey), |b| {
        b.put(second(b) + 8, [0; 4]);
    });
    check(FILE, "has a key of 40000 bytes", is!(LongKey), |b| {
        let large = largest_leaf(b);
        let element = DamagedFile::element(large, b.count(large) - 1);
        b.put(element + 8, 40_000_u32.to_le_bytes());
        let value = b.u32(element + 12);
        b.put(element + 12, (value + 17 - 40_000).to_le_bytes());
    });
    check(FILE, "which is not after", is!(KeyOrder), |b| {
        let (first, second) = (b.key(DamagedFile::element(leaf(b), 0)), b.key(second(b)));
        b.bytes.copy_within(first, second.start);
    });
    check(FILE, "in the parent page", is!(KeyBeforeParent), |b| {
        let key = b.key(DamagedFile::element(leaf(b), 0));
        b.bytes[key.start..key.start + 8].fill(0);
    });
    check(FILE, "where the next page begins", is!(KeyAfterParent), |b| {
        let key = b.key(DamagedFile::element(leaf(b), b.count(leaf(b)) - 1));
        b.bytes[key.start] = 0x7F;
    });
}

#[test]
fn a_tree_that_is_too_deep_is_detected() {
    check(FILE, "is more than 64 levels deep", is!(TooDeep), |b| {
        // Appends a chain of branch pages to the file.
        let hash = b.bytes.split_off(b.bytes.len() - 32);
        let (first, root) = (b.pages(), b.root("key"));
        let entry = b.bytes[root..root + b.size].to_vec();
        let key_length = b.u32(DamagedFile::element(root, 0) + 4);
        for number in first..first + 80 {
            let offset = b.bytes.len();
            b.bytes.extend(&entry);
            b.put(offset, number.to_le_bytes());
            b.put(offset + 10, 1_u16.to_le_bytes());
            let from = DamagedFile::element(root, 0) + b.u32(DamagedFile::element(root, 0)) as usize;
            let key = from..from + key_length as usize;
            b.put(offset + 16, 16_u32.to_le_bytes());
            b.put(offset + 24, (number + 1).to_le_bytes());
            b.bytes.copy_within(key, offset + 32);
        }
        b.put(DamagedFile::element(root, 0) + 8, first.to_le_bytes());
        b.put_in_metas(40, (first + 80).to_le_bytes());
        b.bytes.extend(hash);
    });
}

#[test]
fn damaged_buckets_are_detected() {
    check(FILE, "is a bucket of only", is!(BucketHeader), |b| {
        // Shrinks the value and extends the key, so that nothing else moves.
        let element = b.bucket("auth");
        let (key, value) = (b.u32(element + 8), b.u32(element + 12));
        b.put(element + 8, (key + value - 8).to_le_bytes());
        b.put(element + 12, 8_u32.to_le_bytes());
    });
    check(
        FILE,
        "bucket \"auth\": is an invalid inline bucket",
        is!(InlineBucket),
        |b| {
            b.put(b.root("auth") + 8, [1, 0]);
        },
    );
    check(
        FILE,
        "its length does not match its content",
        is!(InlineBucket),
        |b| {
            b.put(b.root("auth") + 10, [0, 0]);
        },
    );
    check(FILE, "it has a page number", is!(InlineBucket), |b| {
        b.put(b.root("auth"), [1]);
    });
    check(FILE, "it has overflow pages", is!(InlineBucket), |b| {
        b.put(b.root("auth") + 12, [1, 0, 0, 0]);
    });
    check(
        FILE,
        "it has both a root page and an inline page",
        is!(InlineBucket),
        |b| {
            let value = b.value(b.bucket("auth")).start;
            b.put(value, 3_u64.to_le_bytes());
        },
    );
    check(FILE, "refers to page 999999", is!(OutOfBounds), |b| {
        let value = b.value(b.bucket("key")).start;
        b.put(value, 999_999_u64.to_le_bytes());
    });
    check(FILE, "is a key instead of a bucket", is!(NotABucket), |b| {
        b.put(b.bucket("auth"), [0; 4]);
    });
    check(
        FILE,
        "\"authUserz\" is unknown to etcd",
        is!(UnknownContent),
        |b| {
            let key = b.key(b.bucket("authUsers"));
            b.bytes[key.end - 1] = b'z';
        },
    );
    check(
        FILE,
        "element 0 of bucket \"cluster\": \"clusterVersioo\" is unknown",
        is!(UnknownContent),
        |b| {
            let key = b.key(DamagedFile::element(b.root("cluster"), 0));
            b.bytes[key.end - 1] = b'o';
        },
    );
    check(FILE, "bucket \"key\": is missing", is!(BucketMissing), |b| {
        let key = b.key(b.bucket("key"));
        b.bytes[key.start + 2] = b'z';
    });
}

#[test]
fn a_wrong_freelist_is_detected() {
    fn list(b: &DamagedFile) -> usize {
        b.page(b.u64(16 + 32))
    }
    for name in [LISTED, SYNCED] {
        check(
            name,
            "has the type 0x0002 instead of that of a freelist",
            is!(FreelistType),
            |b| {
                b.put(list(b) + 8, [2, 0]);
            },
        );
        check(
            name,
            "is a freelist of 60000 pages, but only",
            is!(FreelistCount),
            |b| {
                b.put(list(b) + 10, 60_000_u16.to_le_bytes());
            },
        );
        check(name, "is a freelist of 70000 pages", is!(FreelistCount), |b| {
            b.put(list(b) + 10, [0xFF, 0xFF]);
            b.put(list(b) + 16, 70_000_u64.to_le_bytes());
        });
        check(name, "has the page number 3333", is!(WrongId), |b| {
            b.put(list(b), 3333_u64.to_le_bytes());
        });
        check(name, "lists page 1 as free", is!(FreeOutOfBounds), |b| {
            b.put(list(b) + 16, 1_u64.to_le_bytes());
        });
        check(name, "as free after page", is!(FreeOrder), |b| {
            let first = b.u64(list(b) + 16);
            b.put(list(b) + 24, first.to_le_bytes());
        });
        check(name, "is in use and listed as free", is!(FreeInUse), |b| {
            let used = b.u64(b.root("key"));
            b.put(list(b) + 16, used.to_le_bytes());
        });
        check(name, "is neither in use nor listed as free", is!(Leaked), |b| {
            let count = b.u16(list(b) + 10);
            b.put(list(b) + 10, (count - 1).to_le_bytes());
        });
    }
}

#[test]
fn content_that_etcd_does_not_write_is_detected() {
    let value = |b: &DamagedFile, index: usize| b.value(DamagedFile::element(b.leaves()[1], index));
    check(
        FILE,
        "the two numbers of a revision are separated by an underscore",
        is!(InvalidContent),
        |b| {
            let last = *b.leaves().last().expect("there are leaves");
            let offset = b.key(DamagedFile::element(last, b.count(last) - 1)).start + 8;
            b.bytes[offset] = b'~';
        },
    );
    check(FILE, "it has an unknown field", is!(InvalidContent), |b| {
        let offset = value(b, 2).start;
        b.bytes[offset] = 0x7A;
    });
    check(FILE, "it is truncated", is!(InvalidContent), |b| {
        let offset = value(b, 2).start + 1;
        b.bytes[offset] = 0x7F;
    });
    check(
        FILE,
        "its mod revision differs from its revision",
        is!(InvalidContent),
        |b| {
            // The create revision and the mod revision follow the key.
            let from = value(b, 2).start;
            let offset = from + 2 + usize::from(b.bytes[from + 1]) + 3;
            assert_eq!(b.bytes[offset - 1], 0x18);
            b.bytes[offset] += 1;
        },
    );
    check(FILE, "of bucket \"members\": ", is!(InvalidContent), |b| {
        let element = DamagedFile::element(b.root("members"), 0);
        let offset = b.key(element).start;
        b.bytes[offset] = b'0';
    });
    check(FILE, "its lease differs from its key", is!(InvalidContent), |b| {
        let offset = b.key(DamagedFile::element(b.root("lease"), 0)).start;
        b.bytes[offset] ^= 1;
    });
    check(FILE, "its name differs from its key", is!(InvalidContent), |b| {
        let offset = b.key(DamagedFile::element(b.root("authUsers"), 0)).start;
        b.bytes[offset] ^= 1;
    });
    check("3.5-nospace", "it is not an alarm", is!(InvalidContent), |b| {
        let offset = b.key(DamagedFile::element(b.root("alarm"), 0)).start;
        b.bytes[offset] = 0x18;
    });
    check(FILE, "it is neither 0 nor 1", is!(InvalidContent), |b| {
        let offset = b.value(DamagedFile::element(b.root("auth"), 0)).start;
        b.bytes[offset] = 7;
    });
}

#[test]
fn all_damage_is_reported() {
    let mut damaged = DamagedFile::new(FILE);
    let leaves = damaged.leaves();
    damaged.put(leaves[0], 1_234_567_u64.to_le_bytes());
    damaged.put(leaves[2] + 8, [0x40, 0]);
    damaged.bytes[16 + 50] ^= 4;
    let lines: Vec<String> = find_damage(&damaged.bytes)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
}
