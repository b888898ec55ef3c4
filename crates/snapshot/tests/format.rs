//! Checks `docs/format.md`: the program next to it, written from the page alone, reads every format.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use etcd_operator_snapshot::frames::{
    Compression, Encoder, FRAME_SIZE, KeyId, MasterKey, ObjectFormat, Salt,
};

fn format_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format")
}

/// Builds the program with Go, which the test bed needs, too. Returns `None` if Go is not installed.
fn build(target: &Path) -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok()?;
    let program = target.join("format");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(format_directory())
        .output()
        .expect("go runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Some(program)
}

fn run(program: &Path, key: &Path, object: &[u8]) -> (bool, Vec<u8>) {
    let mut child = Command::new(program)
        .arg(key)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("it has an input");
    let object = object.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&object));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends").expect("it reads all");
    (output.status.success(), output.stdout)
}

#[test]
fn the_program_is_short() {
    let text = fs::read_to_string(format_directory().join("main.go")).expect("the program is there");
    assert!(text.lines().count() <= 40, "{} lines", text.lines().count());
}

#[test]
fn the_program_beside_the_page_reads_every_format() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(program) = build(target) else {
        eprintln!("Go is not installed: the program next to docs/format.md was not run");
        return;
    };
    let (key, master) = (target.join("key"), MasterKey::new(&[5; 32]).expect("32 bytes"));
    fs::write(&key, [5; 32]).expect("the key is written");
    // Three frames: a compressible one, an incompressible one, and one that is not full.
    let mut noise = 1_u32;
    let plain: Vec<u8> = (0..2 * FRAME_SIZE + 77)
        .map(|offset| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if offset < FRAME_SIZE {
                b'x'
            } else {
                noise.to_be_bytes()[0]
            }
        })
        .collect();
    for (compression, sealed) in [
        (Compression::Zstd, false),
        (Compression::None, true),
        (Compression::Zstd, true),
    ] {
        let form = ObjectFormat {
            compression,
            seal: sealed.then(|| (KeyId::new("k").expect("an id"), &master, Salt([6; 32]))),
            frame: FRAME_SIZE,
        };
        let mut object = Vec::new();
        let mut encoder = Encoder::new(form, &mut object).expect("an encoder");
        encoder.push(&plain, &mut object).expect("the snapshot");
        encoder.finish(&mut object).expect("the end");
        let (succeeded, out) = run(&program, &key, &object);
        assert!(succeeded && out == plain, "{compression:?}, sealed: {sealed}");
        let offset = object.len() - 50;
        object[offset] ^= 1;
        assert!(
            !run(&program, &key, &object).0,
            "{compression:?}, sealed: {sealed}, damaged"
        );
    }
}
