//! Rewrites messages for commands run by hand: there is no spec, so they name flags instead of fields. Pure.

/// Whole phrases, replaced before single fields.
const PHRASES: [(&str, &str); 8] = [
    (
        "etcdEndpoints holds an address with a user in it: the user of etcd belongs into a Secret with username and password (by hand --user)",
        "--endpoint holds an address with a user in it: the user of etcd belongs into files username and password in the directory of --user",
    ),
    (
        "clientTLSSecret must name a Secret with",
        "--client-tls must name a directory with",
    ),
    (
        "the Secret of spec.encryption has no keys; each entry must be",
        "the directory of --keys holds no keys; each file must be",
    ),
    ("of spec.encryption", "of --keys"),
    (", in which a Secret must be mounted,", ""),
    (
        "the Secret is missing or empty (nothing is mounted at ",
        "the directory is missing or empty (no file is at ",
    ),
    ("which no entry of a Secret can have", "which is too large for it"),
    (
        "the owner and mode of local.path",
        "the owner and mode of the directory",
    ),
];

/// Secrets with credentials, and the platform identity that counts without one.
const IDENTITIES: [(&str, &str); 4] = [
    ("s3.awsSecret", "the variables AWS_… or the machine's identity"),
    (
        "oss.ossSecret",
        "the variables ALIBABA_CLOUD_… or the machine's identity",
    ),
    (
        "gcs.gcpSecret",
        "the variable GOOGLE_APPLICATION_CREDENTIALS or the machine's identity",
    ),
    ("abs.absSecret", "the variables AZURE_… or the machine's identity"),
];

/// Fields of a spec and their flags.
const FIELDS: [(&str, &str); 21] = [
    ("s3.awsSecret", "--store-secret"),
    ("oss.ossSecret", "--store-secret"),
    ("gcs.gcpSecret", "--store-secret"),
    ("abs.absSecret", "--store-secret"),
    ("s3.caSecret", "--store-ca"),
    ("oss.caSecret", "--store-ca"),
    ("gcs.caSecret", "--store-ca"),
    ("abs.caSecret", "--store-ca"),
    ("s3.endpoint", "--store-endpoint"),
    ("oss.endpoint", "--store-endpoint"),
    ("gcs.endpoint", "--store-endpoint"),
    ("abs.endpoint", "--store-endpoint"),
    ("s3.forcePathStyle", "--path-style"),
    ("s3.region", "--store-region"),
    ("oss.region", "--store-region"),
    ("s3.path", "the address s3://BUCKET/KEY"),
    ("oss.path", "the address oss://BUCKET/KEY"),
    ("gcs.path", "the address gs://BUCKET/KEY"),
    ("abs.path", "the address abs://CONTAINER/KEY"),
    ("local.path", "the path"),
    ("local.persistentVolumeClaim", "the file system of the path"),
];

/// Fields whose names contain no dot.
const WORDS: [(&str, &str); 2] = [
    ("etcdEndpoints", "--endpoint"),
    ("clientTLSSecret", "--client-tls"),
];

/// The message with flags instead of fields.
pub fn by_hand(message: &str) -> String {
    let mut text = message.to_owned();
    for (phrase, by_hand) in PHRASES {
        text = text.replace(phrase, by_hand);
    }
    for (secret, without) in IDENTITIES {
        let look = format!("look at {secret}");
        text = text.replace(
            &look,
            &format!("look at --store-secret, or without it at {without}"),
        );
    }
    for (field, flag) in FIELDS.into_iter().chain(WORDS) {
        text = replaced(&text, &format!("spec.{field}"), flag);
        text = replaced(&text, field, flag);
    }
    text
}

/// Replaces whole words, not parts of other ones such as host names.
fn replaced(text: &str, word: &str, by: &str) -> String {
    let is_part = |sign: char| sign.is_alphanumeric() || matches!(sign, '.' | '-' | '/' | '_');
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        let goes_on = after.strip_prefix('.').unwrap_or(after);
        let is_whole = !before.chars().next_back().is_some_and(is_part) && !goes_on.starts_with(is_part);
        out.push_str(before);
        out.push_str(if is_whole { by } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use etcd_operator_store::backend::{Kind, StoreLocation};
    use etcd_operator_store::error::{Class, Error, Fault, Operation};

    use super::*;

    const CLASSES: [Class; 20] = [
        Class::Transient,
        Class::Throttled,
        Class::TimedOut,
        Class::Unreachable,
        Class::Conflict,
        Class::NotFound,
        Class::NoBucket,
        Class::NoUpload,
        Class::Forbidden,
        Class::Credentials,
        Class::Clock,
        Class::WrongRegion,
        Class::Full,
        Class::Locked,
        Class::TlsUntrusted,
        Class::NotAStore,
        Class::Exists,
        Class::Changed,
        Class::Corrupt,
        Class::Unsupported,
    ];

    #[test]
    fn whatever_goes_wrong_with_a_store_no_field_of_a_spec_is_named_by_hand() {
        let mut changed = 0;
        for kind in [Kind::S3, Kind::Oss, Kind::Gcs, Kind::Abs, Kind::Local] {
            let location = StoreLocation {
                kind,
                bucket: "b".to_owned(),
                endpoint: String::new(),
            };
            for class in CLASSES {
                let error = Error::new(Fault::new(class, ""), Operation::List, &location, "k", 1);
                let before = error.to_string();
                let told = by_hand(&before);
                for (field, _) in FIELDS {
                    assert!(!told.contains(field), "{told}");
                }
                assert!(!told.contains("Secret (") && !told.contains("spec."), "{told}");
                changed += usize::from(told != before);
            }
        }
        assert!(changed >= 30, "{changed}");
    }

    #[test]
    fn messages_about_etcd_and_keys_name_flags_and_hosts_stay_as_they_are() {
        for (message, expected) in [
            ("etcdEndpoints is empty", "--endpoint is empty"),
            (
                "the key \"a\" of spec.encryption cannot be used: x",
                "the key \"a\" of --keys cannot be used: x",
            ),
            (
                "s3.endpoint: is no address; for example: https://s3.region.example.com",
                "--store-endpoint: is no address; for example: https://s3.region.example.com",
            ),
            ("look at s3.endpoint.", "look at --store-endpoint."),
            (
                "look at s3.endpoint and s3.forcePathStyle; tried 2 times",
                "look at --store-endpoint and --path-style; tried 2 times",
            ),
            ("no such object s3://b/s3.path", "no such object s3://b/s3.path"),
        ] {
            assert_eq!(by_hand(message), expected);
        }
    }
}
