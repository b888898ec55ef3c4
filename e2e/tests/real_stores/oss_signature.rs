//! The signature of OSS against the vendor's own client, both ways: it signs our requests as we do, and we sign its
//! requests as it does.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::{self, Component};
use etcd_operator_store::oss::sign::{self, AccessKey, SignedRequest};
use etcd_operator_store::secret::SecretString;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const COUNT: usize = 2000;

#[derive(Serialize)]
struct Asked<'a> {
    id: &'a str,
    secret: &'a str,
    token: &'a str,
    region: &'a str,
    method: &'a str,
    bucket: &'a str,
    key: &'a str,
    query: &'a BTreeMap<String, String>,
    headers: &'a BTreeMap<String, String>,
    time: i64,
}

#[derive(Deserialize)]
struct Made {
    id: String,
    secret: String,
    token: String,
    region: String,
    method: String,
    host: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
}

/// Numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }

    fn text(&mut self, letters: &str, longest: usize) -> String {
        let letters: Vec<char> = letters.chars().collect();
        let length = 1 + self.below(longest);
        (0..length).map(|_| letters[self.below(letters.len())]).collect()
    }
}

const PLAIN: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz-";
const ODD: &str = "aB3 /%+&=#?~!@$,;:'()*[]{}-._äß€🦀";

async fn run(arguments: &[&str], input: String) -> Result<String> {
    let mut child = Command::new(components::find(Component::OssSigner).await?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    // It answers line by line, so both pipes must move.
    let writer = tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
    let output = child.wait_with_output().await?;
    writer.await??;
    ensure!(
        output.status.success(),
        "{arguments:?} ended with {}",
        output.status
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn the_vendors_client_signs_our_requests_as_we_do() -> Result<()> {
    let mut chance = Chance(20_261_121);
    let (mut ours, mut input) = (Vec::new(), String::new());
    for _ in 0..COUNT {
        let (id, secret) = (chance.text(PLAIN, 24), chance.text(PLAIN, 90));
        let token = if chance.below(2) == 0 {
            String::new()
        } else {
            chance.text(PLAIN, 200)
        };
        let region = chance.text("abcdefgh-", 12);
        let mut request = SignedRequest {
            method: ["GET", "PUT", "POST", "DELETE", "HEAD"][chance.below(5)].to_owned(),
            bucket: format!("bucket-{}", chance.text(LOWER, 5)),
            key: if chance.below(5) == 0 {
                String::new()
            } else {
                chance.text(ODD, 40)
            },
            query: BTreeMap::new(),
            headers: BTreeMap::new(),
        };
        for _ in 0..chance.below(5) {
            let value = if chance.below(3) == 0 {
                String::new()
            } else {
                chance.text(ODD, 15)
            };
            request.query.insert(chance.text(LOWER, 10), value);
        }
        for name in [
            "content-type",
            "content-md5",
            "x-oss-meta-mark",
            "x-oss-range-behavior",
            "user-agent",
        ] {
            if chance.below(2) == 0 {
                request.headers.insert(name.to_owned(), chance.text(PLAIN, 20));
            }
        }
        let at = Timestamp::from_second(1_600_000_000 + i64::try_from(chance.below(400_000_000))?)?;
        let keys = AccessKey {
            id: id.clone(),
            secret: SecretString::new(&secret),
            token: (!token.is_empty()).then(|| SecretString::new(&token)),
        };
        sign::add_signature_headers(&mut request, &keys, at);
        ours.push(sign::authorization(&request, &keys, &region, at));
        let asked = Asked {
            id: &id,
            secret: &secret,
            token: &token,
            region: &region,
            method: &request.method,
            bucket: &request.bucket,
            key: &request.key,
            query: &request.query,
            headers: &request.headers,
            time: at.as_second(),
        };
        input.push_str(&serde_json::to_string(&asked)?);
        input.push('\n');
    }
    let theirs = run(&["sign"], input).await?;
    let theirs: Vec<&str> = theirs.lines().collect();
    assert_eq!(theirs.len(), COUNT);
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours, theirs);
    }
    Ok(())
}

#[tokio::test]
async fn we_sign_the_requests_of_the_vendors_client_as_it_does() -> Result<()> {
    let made = run(&["make", "20261121", &COUNT.to_string()], String::new()).await?;
    let mut count = 0;
    for line in made.lines() {
        let made: Made = serde_json::from_str(line)?;
        let (bucket, _) = made.host.split_once('.').context("no bucket in the host")?;
        let keys = AccessKey {
            id: made.id,
            secret: SecretString::new(made.secret),
            token: (!made.token.is_empty()).then(|| SecretString::new(made.token)),
        };
        let pairs = made.query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(&value.replace('+', "%20")))
        });
        let time = made.headers.get("x-oss-date").context("no date")?;
        let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time)?;
        let at = at.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp();
        let request = SignedRequest {
            method: made.method,
            bucket: bucket.to_owned(),
            key: decoded(made.path.trim_start_matches('/')),
            query: pairs.collect(),
            headers: made.headers.clone(),
        };
        let ours = sign::authorization(&request, &keys, &made.region, at);
        assert_eq!(Some(&ours), made.headers.get("authorization"), "{line}");
        count += 1;
    }
    assert_eq!(count, COUNT);
    Ok(())
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        match (first, others) {
            (b'%', [high, low, others @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
                rest = others;
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}
