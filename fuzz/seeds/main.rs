//! Unpacks the corpus of real databases as seeds for the fuzzer.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = here.join("corpus/database");
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(here.join("../crates/snapshot/corpus"))? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".db.zst")) else {
            continue;
        };
        fs::write(to.join(name), zstd::decode_all(fs::File::open(&path)?)?)?;
    }
    Ok(())
}
