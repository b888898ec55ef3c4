//! Benchmarks with a file. `measure FILE` prints how fast its stream is verified and encoded, how fast it is
//! checked, and the peak memory. No test runs it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use etcd_operator_snapshot::content::audit::audit;
use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::frames::{
    Compression, Encoder, FRAME_SIZE, KeyId, MasterKey, ObjectFormat, Salt,
};
use etcd_operator_snapshot::source;
use etcd_operator_snapshot::stream::StreamVerifier;

/// The chunk size of etcd's snapshot stream.
const CHUNK_SIZE: usize = 32 << 10;

fn main() -> io::Result<()> {
    let path = std::env::args().nth(1).expect("a file");
    let length = std::fs::metadata(&path)?.len();
    let report = |what: &str, taken: Duration| {
        let rate = u128::from(length) / taken.as_micros().max(1);
        writeln!(
            io::stdout(),
            "{what:<28}{rate:>6} MB/s{:>9.1?}  {}",
            taken,
            peak_memory()
        )
    };
    report("read", measure(|| read_chunks(&path, |_| {}))?)?;
    report(
        "check",
        measure(|| {
            let mut check = StreamVerifier::default();
            read_chunks(&path, |chunk| check.push(chunk))?;
            check.finish().map(|_| ()).map_err(io::Error::other)
        })?,
    )?;
    let key = MasterKey::new(&[1; 32]).expect("32 bytes");
    for (what, compression, sealed) in [
        ("frames, encrypted", Compression::None, true),
        ("frames, zstd", Compression::Zstd, false),
        ("frames, zstd, encrypted", Compression::Zstd, true),
    ] {
        let frame = || {
            let seal = sealed.then(|| (KeyId::new("k").expect("an id"), &key, Salt([1; 32])));
            let form = ObjectFormat {
                compression,
                seal,
                frame: FRAME_SIZE,
            };
            let mut out = Vec::new();
            let mut encoder = Encoder::new(form, &mut out).map_err(io::Error::other)?;
            read_chunks(&path, |chunk| {
                encoder.push(chunk, &mut out).expect("a chunk");
                out.clear();
            })?;
            encoder.finish(&mut out).map(|_| ()).map_err(io::Error::other)
        };
        report(what, measure(frame)?)?;
    }
    let mut database = Database::open(source::File::new(File::open(&path)?)?).map_err(io::Error::other)?;
    let mut records = 0;
    report(
        "walk",
        measure(|| {
            let audit = audit(&mut database).map_err(io::Error::other)?;
            records = audit.records;
            writeln!(
                io::stdout(),
                "{records} entries, {} findings",
                audit.findings.list.len()
            )
        })?,
    )?;
    report(
        "digest",
        measure(|| {
            let live = find_live_keys(&mut database, None, records).map_err(io::Error::other)?;
            writeln!(io::stdout(), "{} keys", live.keys)
        })?,
    )
}

fn measure(run: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let start = Instant::now();
    run().map(|()| start.elapsed())
}

fn read_chunks(path: &str, mut consume: impl FnMut(&[u8])) -> io::Result<()> {
    let (mut file, mut chunk) = (File::open(path)?, vec![0; CHUNK_SIZE]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(()),
            length => consume(&chunk[..length]),
        }
    }
}

/// The peak memory of this process.
fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    line.unwrap_or("VmHWM unknown")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
