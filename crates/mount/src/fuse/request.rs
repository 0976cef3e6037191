//! What the kernel asks.

use super::bytes::Reader;
use super::flags::{self, RESENT};

/// Who asks, and what about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the request; its answer has it too.
    pub unique: u64,
    /// What it is about.
    pub node: u64,
    /// The caller's user (`fsuid`); [`flags::NOBODY`] of what the kernel does by itself.
    pub uid: u32,
    /// The caller's group (`fsgid`).
    pub gid: u32,
    /// The caller's thread; 0 if it cannot be named here.
    pub pid: u32,
}

impl Header {
    /// It may have been asked before, of a server that is dead now.
    pub fn is_repeated(&self) -> bool {
        self.unique & RESENT != 0
    }
}

/// One request.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Who asks, and what about.
    pub header: Header,
    /// What is to be done.
    pub operation: Operation<'a>,
}

/// What is to be done. Names are those within the directory that the header's node is.
#[derive(Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first of a mount.
    Init { minor: u32, max_readahead: u32, flags: u64 },
    /// Which node has that name?
    Lookup { name: &'a [u8] },
    /// The kernel knows these nodes so many times less. Not answered.
    Forget { nodes: Vec<(u64, u64)> },
    /// Of an open file, if one is named.
    GetAttributes { file: Option<u64> },
    /// See [`SetAttributes`].
    SetAttributes(SetAttributes),
    /// May the caller do that (bits as of access(2))?
    Access { mask: u32 },
    /// Make an empty file.
    MakeNode { name: &'a [u8], mode: u32, umask: u32 },
    /// Make a directory.
    MakeDirectory { name: &'a [u8], mode: u32, umask: u32 },
    /// Remove a file.
    Unlink { name: &'a [u8] },
    /// Remove an empty directory.
    RemoveDirectory { name: &'a [u8] },
    /// Rename, to another directory perhaps.
    Rename { name: &'a [u8], to_directory: u64, to: &'a [u8], flags: u32 },
    /// Open a file.
    Open { flags: u32 },
    /// Make a file, and open it.
    Create { name: &'a [u8], flags: u32, mode: u32, umask: u32 },
    /// Read from an open file.
    Read { file: u64, offset: u64, size: u32 },
    /// Write to an open file.
    Write { file: u64, offset: u64, write_flags: u32, flags: u32, data: &'a [u8] },
    /// A descriptor was closed.
    Flush,
    /// The last descriptor and mapping of an open file are gone.
    Release { file: u64 },
    /// Store what was written.
    Sync { file: u64 },
    /// Begin to list a directory.
    OpenDirectory,
    /// List on.
    ReadDirectory { file: u64, offset: u64, size: u32 },
    /// End.
    ReleaseDirectory { file: u64 },
    /// What `df` asks.
    StatFs,
    /// An extended attribute.
    GetExtended { name: &'a [u8], size: u32 },
    /// The names of all.
    ListExtended { size: u32 },
    /// Find data, or a hole.
    Seek { file: u64, offset: u64, whence: u32 },
    /// Take or give back memory.
    Allocate { file: u64, offset: u64, length: u64, mode: u32 },
    /// Who asked that does not wait any more. Not answered.
    Interrupt { unique: u64 },
    /// The mount ends.
    Destroy,
    /// Something else.
    Other,
}

/// What is to be changed; each if its bit of [`flags::set`] is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttributes {
    /// Which.
    pub valid: u32,
    /// An open file.
    pub file: u64,
    /// Bytes.
    pub size: u64,
    /// Seconds of the time of modification.
    pub mtime: u64,
    /// And its nanoseconds.
    pub mtime_ns: u32,
    /// Mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl SetAttributes {
    /// Whether that is to be changed.
    pub fn has(&self, bit: u32) -> bool {
        self.valid & bit != 0
    }
}

/// Reads a message. `None`: it is too short for what it says it is.
pub fn decode(message: &[u8]) -> Option<Asked<'_>> {
    let mut rest = Reader(message);
    let (_length, opcode, unique) = (rest.u32()?, rest.u32()?, rest.u64()?);
    let (node, uid, gid, pid) = (rest.u64()?, rest.u32()?, rest.u32()?, rest.u32()?);
    let extensions = usize::from(rest.u16()?) * 8;
    rest.take(2)?;
    // Nothing here asks for extensions.
    let body = rest.0.len().checked_sub(extensions)?;
    let header = Header { unique, node, uid, gid, pid };
    let operation = operation(opcode, node, Reader(&rest.0[..body]))?;
    Some(Asked { header, operation })
}

fn operation<'a>(opcode: u32, node: u64, mut body: Reader<'a>) -> Option<Operation<'a>> {
    let body = &mut body;
    Some(match opcode {
        1 => Operation::Lookup { name: body.string()? },
        2 => Operation::Forget { nodes: vec![(node, body.u64()?)] },
        3 => {
            let (bits, _, file) = (body.u32()?, body.u32()?, body.u64()?);
            Operation::GetAttributes { file: (bits & flags::GETATTR_FH != 0).then_some(file) }
        }
        4 => Operation::SetAttributes(set_attributes(body)?),
        8 => {
            let (mode, _rdev, umask, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            Operation::MakeNode { mode, umask, name: body.string()? }
        }
        9 => Operation::MakeDirectory { mode: body.u32()?, umask: body.u32()?, name: body.string()? },
        10 => Operation::Unlink { name: body.string()? },
        11 => Operation::RemoveDirectory { name: body.string()? },
        12 => {
            let to_directory = body.u64()?;
            Operation::Rename { to_directory, flags: 0, name: body.string()?, to: body.string()? }
        }
        45 => {
            let (to_directory, flags, _) = (body.u64()?, body.u32()?, body.u32()?);
            Operation::Rename { to_directory, flags, name: body.string()?, to: body.string()? }
        }
        14 => Operation::Open { flags: body.u32()? },
        35 => {
            let (flags, mode, umask, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            Operation::Create { flags, mode, umask, name: body.string()? }
        }
        15 => Operation::Read { file: body.u64()?, offset: body.u64()?, size: body.u32()? },
        16 => write(body)?,
        18 => Operation::Release { file: body.u64()? },
        20 => Operation::Sync { file: body.u64()? },
        25 => Operation::Flush,
        26 => init(body)?,
        27 => Operation::OpenDirectory,
        28 => Operation::ReadDirectory { file: body.u64()?, offset: body.u64()?, size: body.u32()? },
        29 => Operation::ReleaseDirectory { file: body.u64()? },
        17 => Operation::StatFs,
        22 => {
            let (size, _) = (body.u32()?, body.u32()?);
            Operation::GetExtended { size, name: body.string()? }
        }
        23 => Operation::ListExtended { size: body.u32()? },
        34 => Operation::Access { mask: body.u32()? },
        36 => Operation::Interrupt { unique: body.u64()? },
        38 => Operation::Destroy,
        42 => batch_forget(body)?,
        43 => {
            let (file, offset, length) = (body.u64()?, body.u64()?, body.u64()?);
            Operation::Allocate { file, offset, length, mode: body.u32()? }
        }
        46 => Operation::Seek { file: body.u64()?, offset: body.u64()?, whence: body.u32()? },
        _ => Operation::Other,
    })
}

fn init<'a>(body: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (_major, minor, max_readahead, low) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    // Kernels before 5.17 send no more.
    let high = body.u32().unwrap_or(0);
    let flags =
        u64::from(low) | if u64::from(low) & flags::init::INIT_EXT != 0 { u64::from(high) << 32 } else { 0 };
    Some(Operation::Init { minor, max_readahead, flags })
}

fn write<'a>(body: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (file, offset, size, write_flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
    let (_lock_owner, flags, _) = (body.u64()?, body.u32()?, body.u32()?);
    Some(Operation::Write { file, offset, write_flags, flags, data: body.take(size as usize)? })
}

fn batch_forget<'a>(body: &mut Reader<'a>) -> Option<Operation<'a>> {
    let (count, _) = (body.u32()?, body.u32()?);
    let nodes = (0..count).map(|_| Some((body.u64()?, body.u64()?))).collect::<Option<Vec<_>>>()?;
    Some(Operation::Forget { nodes })
}

fn set_attributes(body: &mut Reader<'_>) -> Option<SetAttributes> {
    let (valid, _, file, size) = (body.u32()?, body.u32()?, body.u64()?, body.u64()?);
    let (_lock_owner, _atime, mtime, _ctime) = (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
    let (_atime_ns, mtime_ns, _ctime_ns, mode) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    let (_, uid, gid) = (body.u32()?, body.u32()?, body.u32()?);
    Some(SetAttributes { valid, file, size, mtime, mtime_ns, mode, uid, gid })
}

#[cfg(test)]
mod tests {
    use super::super::bytes::Writer;
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Writer::default();
        message.u32(0).u32(opcode).u64(7).u64(8).u32(9).u32(10).u32(11).u16(0).u16(0).bytes(body);
        message.0
    }

    #[test]
    fn every_message_is_read_whole_or_not_at_all() {
        let mut write = Writer::default();
        write.u64(1).u64(2).u32(3).u32(1).u64(4).u32(5).u32(0).bytes(b"abc");
        let bytes = message(16, &write.0);
        let asked = decode(&bytes).unwrap();
        assert_eq!(asked.header, Header { unique: 7, node: 8, uid: 9, gid: 10, pid: 11 });
        let expected = Operation::Write { file: 1, offset: 2, write_flags: 1, flags: 5, data: b"abc" };
        assert_eq!(asked.operation, expected);
        (0..bytes.len()).for_each(|length| assert!(decode(&bytes[..length]).is_none(), "{length}"));
    }

    #[test]
    fn names_end_with_a_zero() {
        let found = |body: &[u8]| decode(&message(10, body)).map(|asked| format!("{:?}", asked.operation));
        assert!(found(b"name\0").is_some());
        assert!(found(b"name").is_none());
    }

    #[test]
    fn no_bytes_at_all_make_it_panic_or_take_memory() {
        let mut state = 5u64;
        for round in 0..20_000u32 {
            let mut bytes = message(round % 60, &[]);
            for _ in 0..round % 90 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes.push((state >> 56) as u8);
            }
            let _ = decode(&bytes); // that it does not panic
        }
        // A count of four thousand million nodes, and none there.
        let mut forget = Writer::default();
        forget.u32(u32::MAX).u32(0);
        assert!(decode(&message(42, &forget.0)).is_none());
    }
}
