//! Signatures of other contents of a device: file systems, swap, volumes and partition tables.

/// Bytes from the beginning of a device that are searched for signatures.
pub const LOOKED_AT: usize = 128 << 10;

/// Signatures: meaning, offset and bytes. The offsets are those of `libblkid`.
const SIGNATURES: &[(&str, usize, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", 1024 + 56, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", (64 << 10) + 64, b"_BHRfS_M"),
    ("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("swap space", 4096 - 10, b"SWAPSPACE2"),
    ("swap space", 4096 - 10, b"SWAP-SPACE"),
    ("swap space", (64 << 10) - 10, b"SWAPSPACE2"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a bcache device", 4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("a part of a RAID", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("a part of a RAID", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("a partition table (GPT)", 512, b"EFI PART"),
    ("a partition table (GPT)", 4096, b"EFI PART"),
    // Last, because a boot sector ends like this whatever else it contains.
    ("a partition table or a boot sector", 510, &[0x55, 0xaa]),
];

/// The kind of contents that begin with these bytes, of which [`LOOKED_AT`] matter; none without a signature.
pub fn signature(first: &[u8]) -> Option<&'static str> {
    let is_there = |&&(_, at, bytes): &&(&str, usize, &[u8])| first.get(at..at + bytes.len()) == Some(bytes);
    SIGNATURES.iter().find(is_there).map(|&(name, ..)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signature_is_found_and_none_in_zeros_or_in_what_ends_before_it() {
        assert_eq!(signature(&[]), None);
        assert_eq!(signature(&[0; LOOKED_AT]), None);
        for &(name, at, bytes) in SIGNATURES {
            assert!(at + bytes.len() <= LOOKED_AT, "{name}");
            let mut first = vec![0; LOOKED_AT];
            first[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(signature(&first), Some(name));
            assert_eq!(signature(&first[..at + bytes.len() - 1]), None, "{name}");
            first[at] ^= 1;
            assert_eq!(signature(&first), None, "{name}");
        }
    }

    /// Real file systems, where their tools are installed.
    #[test]
    fn what_the_tools_of_file_systems_make_is_recognised() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (mut made, mut skipped) = (0, Vec::new());
        for (tool, arguments, expected) in [
            ("mkfs.ext4", &["-q", "-F"][..], "an ext2, ext3 or ext4 file system"),
            ("mkfs.xfs", &["-q", "-f"], "an XFS file system"),
            ("mkfs.btrfs", &["-q", "-f"], "a btrfs file system"),
            ("mkswap", &["-q"], "swap space"),
        ] {
            let path = scratch.path().join(tool);
            let file = std::fs::File::create(&path).and_then(|file| file.set_len(400 << 20));
            file.expect("a sparse file");
            let output = std::process::Command::new(tool).args(arguments).arg(&path).output();
            if !output.is_ok_and(|output| output.status.success()) {
                skipped.push(tool);
                continue;
            }
            let mut first = vec![0; LOOKED_AT];
            let file = std::fs::File::open(&path).expect("the image");
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut first, 0).expect("its beginning");
            assert_eq!(signature(&first), Some(expected), "{tool}");
            made += 1;
        }
        println!("{made} kinds were made and recognised; skipped, their tools are not here or fail: {skipped:?}");
    }
}
