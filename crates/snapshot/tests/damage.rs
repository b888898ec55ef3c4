//! Every kind of damage, done on purpose to a real file: a full walk finds it, and says where and what.

mod support;

use etcd_operator_snapshot::database::{Damage, Error, What};
use support::{Broken, walk};

/// All that a walk finds in these bytes; what keeps it from starting counts too.
fn found(bytes: &[u8]) -> Vec<Damage> {
    match walk(bytes) {
        Ok(audit) => audit.findings.list,
        Err(Error::Damage(damage)) => vec![damage],
        Err(Error::Read(error)) => panic!("{error}"),
    }
}

/// Breaks a file and looks for damage of this kind; its message must hold these words.
fn check(name: &str, words: &str, is_it: impl Fn(&What) -> bool, breaks: impl FnOnce(&mut Broken)) {
    let mut broken = Broken::new(name);
    assert_eq!(found(&broken.bytes), [], "{name} is whole");
    breaks(&mut broken);
    let found = found(&broken.bytes);
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let wanted = found.iter().zip(&lines).find(|(damage, _)| is_it(&damage.what));
    let (_, line) = wanted.unwrap_or_else(|| panic!("not found: {words}; but {lines:#?}"));
    assert!(line.contains(words), "{line:?} does not say {words:?}");
}

macro_rules! is {
    ($what:ident) => {
        |what: &What| matches!(what, What::$what { .. })
    };
}

const FILE: &str = "3.5-full";
const LISTED: &str = "3.2-full";
const SYNCED: &str = "3.5-synced";

#[test]
fn a_file_of_the_wrong_length_is_found() {
    check(FILE, "the file: 5000 bytes are too few", is!(TooShort), |b| {
        b.bytes.truncate(5000);
    });
    check(FILE, "the file: ends after", is!(Truncated), |b| {
        let end = b.bytes.len() - 32 - 2 * b.size;
        b.bytes.truncate(end);
    });
    check(FILE, "where a snapshot of these pages has", is!(TooLong), |b| {
        let hash = b.bytes.split_off(b.bytes.len() - 32);
        b.bytes.extend(vec![0; b.size]);
        b.bytes.extend(hash);
    });
}

#[test]
fn metas_that_are_not_whole_are_found() {
    check(FILE, "page 0: is torn", is!(Torn), |b| b.bytes[16 + 50] ^= 4);
    check(FILE, "page 1: is torn", is!(Torn), |b| {
        let place = b.size + 16 + 20;
        b.bytes[place] ^= 4;
    });
    check(FILE, "page 0: begins with", is!(Magic), |b| b.put(16, [0; 4]));
    check(FILE, "page 0: is of format 3", is!(Version), |b| {
        b.put_meta(4, [3, 0, 0, 0]);
    });
    check(
        FILE,
        "page 0: says that pages have 5000 bytes",
        is!(PageSize),
        |b| {
            b.put_meta(8, 5000_u32.to_le_bytes());
        },
    );
    check(FILE, "page 0: has the root at page 99999", is!(Root), |b| {
        b.put_meta(16, 99_999_u64.to_le_bytes());
    });
    check(
        FILE,
        "page 0: has the free list at page 1",
        is!(FreelistPlace),
        |b| {
            b.put_meta(32, 1_u64.to_le_bytes());
        },
    );
    check(
        FILE,
        "page 1: differs from the other meta page",
        is!(MetasDiffer),
        |b| {
            let root = b.u64(16 + 16);
            let place = b.size + 16 + 16;
            b.put(place, (root + 1).to_le_bytes());
            b.reseal();
        },
    );
    check(FILE, "page 1: says it is page 7", is!(WrongId), |b| {
        let place = b.size;
        b.put(place, 7_u64.to_le_bytes());
    });
    check(
        FILE,
        "page 0: has the unknown type 0x0001",
        is!(UnknownType),
        |b| b.put(8, [1, 0]),
    );
}

#[test]
fn pages_that_are_not_where_and_what_they_should_be_are_found() {
    let at_child = |b: &Broken, index: usize| Broken::element(b.root("key"), index) + 8;
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
        is!(PointsToMeta),
        |b| {
            b.put(at_child(b, 1), 1_u64.to_le_bytes());
        },
    );
    check(
        FILE,
        "of bucket \"key\": says it is page 77777",
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
    check(FILE, "is a meta page, where", is!(WrongType), |b| {
        b.put(b.leaves()[1] + 8, [4, 0]);
    });
    check(FILE, "is a free list page, where", is!(WrongType), |b| {
        b.put(b.leaves()[1] + 8, [16, 0]);
    });
    check(
        FILE,
        "of bucket \"key\": is reached a second time",
        is!(Twice),
        |b| {
            let other = b.u64(at_child(b, 0));
            b.put(at_child(b, 1), other.to_le_bytes());
        },
    );
    check(FILE, "of bucket \"key\": is below itself", is!(Cycle), |b| {
        let root = b.u64(b.root("key"));
        b.put(at_child(b, 1), root.to_le_bytes());
    });
    check(FILE, "which is in use", is!(Overlap), |b| {
        // The first leaf goes on over its neighbour.
        let (leaves, size) = (b.leaves(), b.size);
        let (first, second) = (
            leaves[0] / size,
            leaves[1..].iter().map(|leaf| leaf / size).min().expect("more"),
        );
        let more = u32::try_from(second.abs_diff(first)).expect("small");
        let (from, place) = if first < second {
            (first, leaves[0])
        } else {
            (second, second * size)
        };
        assert!(from > 1);
        b.put(place + 12, more.to_le_bytes());
    });
    check(
        FILE,
        "goes on for 100000 more pages, beyond the last one",
        is!(OverflowBeyond),
        |b| {
            b.put(b.leaves()[0] + 12, 100_000_u32.to_le_bytes());
        },
    );
    check(FILE, "of a page of 4096", is!(BeyondPage), |b| {
        let large = large(b);
        b.put(large + 12, 0_u32.to_le_bytes());
    });
    check(FILE, "and what it holds takes", is!(OverflowWrong), |b| {
        // One that has a free page behind it takes it in.
        let used: Vec<usize> = b.structure().into_iter().map(|place| place / b.size).collect();
        let is_followed = |leaf: &usize| used.contains(&((leaf / b.size) + 1)) || b.u32(leaf + 12) > 0;
        let leaf = b
            .leaves()
            .into_iter()
            .find(|leaf| !is_followed(leaf))
            .expect("there is one");
        b.put(leaf + 12, 1_u32.to_le_bytes());
    });
}

/// The page of the largest value.
fn large(b: &Broken) -> usize {
    let leaves = b.leaves();
    leaves
        .into_iter()
        .max_by_key(|leaf| b.u32(leaf + 12))
        .expect("there are leaves")
}

#[test]
fn elements_that_are_not_as_they_are_written_are_found() {
    let leaf = |b: &Broken| b.leaves()[1];
    let second = |b: &Broken| Broken::element(b.leaves()[1], 1);
    check(FILE, "says it has 65535 elements, and only", is!(Count), |b| {
        b.put(leaf(b) + 10, [0xFF, 0xFF]);
    });
    check(
        FILE,
        "element 0 of bucket \"key\": begins at byte",
        is!(NotNext),
        |b| {
            let count = b.u16(leaf(b) + 10);
            b.put(leaf(b) + 10, (count - 1).to_le_bytes());
        },
    );
    check(FILE, "is a branch without children", is!(EmptyBranch), |b| {
        b.put(b.root("key") + 10, [0, 0]);
    });
    check(FILE, "is a leaf without keys", is!(EmptyLeaf), |b| {
        b.put(leaf(b) + 10, [0, 0]);
    });
    check(FILE, "is a leaf without keys", is!(EmptyLeaf), |b| {
        // The root of a bucket that has a page of its own.
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
        "element 1 of bucket \"key\": is a bucket within a bucket",
        is!(Nested),
        |b| {
            b.put(second(b), [1, 0, 0, 0]);
        },
    );
    check(FILE, "of a page of", is!(BeyondPage), |b| {
        let last = Broken::element(leaf(b), b.count(leaf(b)) - 1);
        b.put(last + 12, 100_000_u32.to_le_bytes());
    });
    check(
        FILE,
        "element 1 of bucket \"key\": begins at byte",
        is!(NotNext),
        |b| {
            let position = b.u32(second(b) + 4);
            b.put(second(b) + 4, (position + 1).to_le_bytes());
        },
    );
    check(FILE, "has an empty key", is!(EmptyKey), |b| {
        b.put(second(b) + 8, [0; 4]);
    });
    check(FILE, "has a key of 40000 bytes", is!(LongKey), |b| {
        let large = large(b);
        let element = Broken::element(large, b.count(large) - 1);
        b.put(element + 8, 40_000_u32.to_le_bytes());
        let value = b.u32(element + 12);
        b.put(element + 12, (value + 17 - 40_000).to_le_bytes());
    });
    check(FILE, "which is not behind", is!(Order), |b| {
        let (first, second) = (b.key(Broken::element(leaf(b), 0)), b.key(second(b)));
        b.bytes.copy_within(first, second.start);
    });
    check(FILE, "of the page above", is!(BeforeParent), |b| {
        let key = b.key(Broken::element(leaf(b), 0));
        b.bytes[key.start..key.start + 8].fill(0);
    });
    check(FILE, "where the next page begins", is!(BehindParent), |b| {
        let key = b.key(Broken::element(leaf(b), b.count(leaf(b)) - 1));
        b.bytes[key.start] = 0x7F;
    });
}

#[test]
fn a_tree_that_is_deeper_than_any_is_found() {
    check(FILE, "is more than 64 levels deep", is!(TooDeep), |b| {
        // A chain of branches behind the end of the file.
        let hash = b.bytes.split_off(b.bytes.len() - 32);
        let (first, root) = (b.pages(), b.root("key"));
        let entry = b.bytes[root..root + b.size].to_vec();
        let key_length = b.u32(Broken::element(root, 0) + 4);
        for number in first..first + 80 {
            let place = b.bytes.len();
            b.bytes.extend(&entry);
            b.put(place, number.to_le_bytes());
            b.put(place + 10, 1_u16.to_le_bytes());
            let from = Broken::element(root, 0) + b.u32(Broken::element(root, 0)) as usize;
            let key = from..from + key_length as usize;
            b.put(place + 16, 16_u32.to_le_bytes());
            b.put(place + 24, (number + 1).to_le_bytes());
            b.bytes.copy_within(key, place + 32);
        }
        b.put(Broken::element(root, 0) + 8, first.to_le_bytes());
        b.put_meta(40, (first + 80).to_le_bytes());
        b.bytes.extend(hash);
    });
}

#[test]
fn buckets_that_are_not_as_they_are_written_are_found() {
    check(FILE, "is a bucket of", is!(ShortBucket), |b| {
        // The value shrinks and the key grows, so that all else stays in place.
        let element = b.bucket("auth");
        let (key, value) = (b.u32(element + 8), b.u32(element + 12));
        b.put(element + 8, (key + value - 8).to_le_bytes());
        b.put(element + 12, 8_u32.to_le_bytes());
    });
    check(
        FILE,
        "bucket \"auth\": is a bucket within its parent's page that is not as",
        is!(Inline),
        |b| {
            b.put(b.root("auth") + 8, [1, 0]);
        },
    );
    check(FILE, "it is not as long as what it holds", is!(Inline), |b| {
        b.put(b.root("auth") + 10, [0, 0]);
    });
    check(FILE, "it has a number", is!(Inline), |b| {
        b.put(b.root("auth"), [1]);
    });
    check(FILE, "it has pages that continue it", is!(Inline), |b| {
        b.put(b.root("auth") + 12, [1, 0, 0, 0]);
    });
    check(
        FILE,
        "it has both a page of its own and one within",
        is!(Inline),
        |b| {
            let value = b.value(b.bucket("auth")).start;
            b.put(value, 3_u64.to_le_bytes());
        },
    );
    check(FILE, "refers to page 999999", is!(OutOfBounds), |b| {
        let value = b.value(b.bucket("key")).start;
        b.put(value, 999_999_u64.to_le_bytes());
    });
    check(FILE, "is a key beside the buckets", is!(NoBucket), |b| {
        b.put(b.bucket("auth"), [0; 4]);
    });
    check(
        FILE,
        "\"authUserz\" is nothing that etcd keeps there",
        is!(Unknown),
        |b| {
            let key = b.key(b.bucket("authUsers"));
            b.bytes[key.end - 1] = b'z';
        },
    );
    check(
        FILE,
        "element 0 of bucket \"cluster\": \"clusterVersioo\" is nothing",
        is!(Unknown),
        |b| {
            let key = b.key(Broken::element(b.root("cluster"), 0));
            b.bytes[key.end - 1] = b'o';
        },
    );
    check(FILE, "bucket \"key\": is missing", is!(BucketMissing), |b| {
        let key = b.key(b.bucket("key"));
        b.bytes[key.start + 2] = b'z';
    });
}

#[test]
fn a_list_of_free_pages_that_is_wrong_is_found() {
    fn list(b: &Broken) -> usize {
        b.page(b.u64(16 + 32))
    }
    for name in [LISTED, SYNCED] {
        check(
            name,
            "has the type 0x0002 where the free list should be",
            is!(FreelistType),
            |b| {
                b.put(list(b) + 8, [2, 0]);
            },
        );
        check(
            name,
            "is a free list of 60000 pages, and only",
            is!(FreelistCount),
            |b| {
                b.put(list(b) + 10, 60_000_u16.to_le_bytes());
            },
        );
        check(name, "is a free list of 70000 pages", is!(FreelistCount), |b| {
            b.put(list(b) + 10, [0xFF, 0xFF]);
            b.put(list(b) + 16, 70_000_u64.to_le_bytes());
        });
        check(name, "says it is page 3333", is!(WrongId), |b| {
            b.put(list(b), 3333_u64.to_le_bytes());
        });
        check(name, "lists page 1 as free", is!(FreeOutOfBounds), |b| {
            b.put(list(b) + 16, 1_u64.to_le_bytes());
        });
        check(name, "as free behind page", is!(FreeOrder), |b| {
            let first = b.u64(list(b) + 16);
            b.put(list(b) + 24, first.to_le_bytes());
        });
        check(name, "is in use and listed as free", is!(FreeInUse), |b| {
            let used = b.u64(b.root("key"));
            b.put(list(b) + 16, used.to_le_bytes());
        });
        check(name, "is neither in use nor listed as free", is!(Lost), |b| {
            let count = b.u16(list(b) + 10);
            b.put(list(b) + 10, (count - 1).to_le_bytes());
        });
    }
}

#[test]
fn what_etcd_does_not_write_is_found() {
    let value = |b: &Broken, index: usize| b.value(Broken::element(b.leaves()[1], index));
    check(
        FILE,
        "the two numbers of a revision are divided by a line",
        is!(Content),
        |b| {
            let last = *b.leaves().last().expect("there are leaves");
            let place = b.key(Broken::element(last, b.count(last) - 1)).start + 8;
            b.bytes[place] = b'~';
        },
    );
    check(FILE, "it has a field that no key has", is!(Content), |b| {
        let place = value(b, 2).start;
        b.bytes[place] = 0x7A;
    });
    check(FILE, "it ends too early", is!(Content), |b| {
        let place = value(b, 2).start + 1;
        b.bytes[place] = 0x7F;
    });
    check(
        FILE,
        "it was not modified at the revision it stands at",
        is!(Content),
        |b| {
            // Behind the key: its creation, then its modification.
            let from = value(b, 2).start;
            let place = from + 2 + usize::from(b.bytes[from + 1]) + 3;
            assert_eq!(b.bytes[place - 1], 0x18);
            b.bytes[place] += 1;
        },
    );
    check(FILE, "of bucket \"members\": ", is!(Content), |b| {
        let element = Broken::element(b.root("members"), 0);
        let place = b.key(element).start;
        b.bytes[place] = b'0';
    });
    check(FILE, "it is not the lease of its key", is!(Content), |b| {
        let place = b.key(Broken::element(b.root("lease"), 0)).start;
        b.bytes[place] ^= 1;
    });
    check(FILE, "it does not have the name of its key", is!(Content), |b| {
        let place = b.key(Broken::element(b.root("authUsers"), 0)).start;
        b.bytes[place] ^= 1;
    });
    check("3.5-nospace", "it is not an alarm", is!(Content), |b| {
        let place = b.key(Broken::element(b.root("alarm"), 0)).start;
        b.bytes[place] = 0x18;
    });
    check(FILE, "it is neither on nor off", is!(Content), |b| {
        let place = b.value(Broken::element(b.root("auth"), 0)).start;
        b.bytes[place] = 7;
    });
}

#[test]
fn one_finding_does_not_hide_another() {
    let mut broken = Broken::new(FILE);
    let leaves = broken.leaves();
    broken.put(leaves[0], 1_234_567_u64.to_le_bytes());
    broken.put(leaves[2] + 8, [0x40, 0]);
    broken.bytes[16 + 50] ^= 4;
    let lines: Vec<String> = found(&broken.bytes).iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 3, "{lines:#?}");
}
