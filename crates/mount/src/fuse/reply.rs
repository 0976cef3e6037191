//! What is answered.

use super::bytes::Writer;

/// What `stat` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the node.
    pub node: u64,
    /// Bytes.
    pub size: u64,
    /// Bytes of memory, in units of 512.
    pub blocks: u64,
    /// Time of modification, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Kind and mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Attributes {
    fn write(&self, to: &mut Writer) {
        let (seconds, nanoseconds) =
            (self.modified_ns / 1_000_000_000, (self.modified_ns % 1_000_000_000) as u32);
        to.u64(self.node).u64(self.size).u64(self.blocks);
        to.u64(seconds).u64(seconds).u64(seconds);
        to.u32(nanoseconds).u32(nanoseconds).u32(nanoseconds);
        let links = if self.mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
        to.u32(self.mode).u32(links).u32(self.uid).u32(self.gid);
        to.u32(0).u32(4096).u32(0);
    }

    /// The answer to GETATTR and SETATTR: good for no longer than this answer, since others change objects.
    pub fn reply(&self) -> Vec<u8> {
        let mut reply = Writer::default();
        reply.u64(0).u32(0).u32(0);
        self.write(&mut reply);
        reply.0
    }
}

/// The answer to LOOKUP, MKNOD and MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryReply {
    /// What is there.
    pub attributes: Attributes,
}

impl EntryReply {
    /// Its bytes; the name is asked for anew each time, since others rename and remove.
    pub fn reply(&self) -> Vec<u8> {
        let mut reply = Writer::default();
        reply.u64(self.attributes.node).u64(0).u64(0).u64(0).u32(0).u32(0);
        self.attributes.write(&mut reply);
        reply.0
    }
}

/// The answer to OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Number of the open file.
    pub file: u64,
    /// Bits of [`flags::open`](super::flags::open).
    pub flags: u32,
    /// With PASSTHROUGH: the number that the kernel gave the file behind.
    pub backing: i32,
}

impl Opened {
    /// Its bytes.
    pub fn reply(&self) -> Vec<u8> {
        let mut reply = Writer::default();
        reply.u64(self.file).u32(self.flags).u32(self.backing.cast_unsigned());
        reply.0
    }
}

/// One number and padding, which several answers are.
pub fn number(number: u32) -> Vec<u8> {
    let mut reply = Writer::default();
    reply.u32(number).u32(0);
    reply.0
}

/// One entry of a directory; `offset`: where the next begins. Whether it fitted into `room` bytes.
pub fn directory_entry(to: &mut Writer, room: usize, node: u64, offset: u64, kind: u32, name: &[u8]) -> bool {
    let bytes = (24 + name.len()).next_multiple_of(8);
    if to.0.len() + bytes > room {
        return false;
    }
    to.u64(node).u64(offset).u32(name.len() as u32).u32(kind >> 12).bytes(name).pad();
    true
}

/// The answer to STATFS: so many blocks of 4096 bytes, of which so many are free, and files.
pub fn file_system(blocks: u64, free: u64, files: u64) -> Vec<u8> {
    let mut reply = Writer::default();
    reply.u64(blocks).u64(free).u64(free).u64(files).u64(0);
    reply.u32(4096).u32(255).u32(4096).u32(0);
    reply.bytes(&[0; 24]);
    reply.0
}

/// The answer to INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitReply {
    /// What the kernel may read ahead, bytes.
    pub max_readahead: u32,
    /// Bits of [`flags::init`](super::flags::init).
    pub flags: u64,
    /// Longest write, bytes.
    pub max_write: u32,
    /// File systems that may lie below a file that is given through: 1, that of the file.
    pub stack_depth: u32,
}

impl InitReply {
    /// Its bytes.
    pub fn reply(&self) -> Vec<u8> {
        /// Requests of the kernel's own that may be under way: it counts those of all users together, so no user may fill it.
        const BACKGROUND: u16 = u16::MAX;
        let mut reply = Writer::default();
        reply
            .u32(super::flags::MAJOR)
            .u32(super::flags::MINOR)
            .u32(self.max_readahead)
            .u32(self.flags as u32);
        reply.u16(BACKGROUND).u16(BACKGROUND).u32(self.max_write).u32(1);
        reply.u16((self.max_write / 4096) as u16).u16(0).u32((self.flags >> 32) as u32).u32(self.stack_depth);
        reply.bytes(&[0; 24]);
        reply.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_kernels_lengths() {
        let attributes = Attributes::default();
        assert_eq!(attributes.reply().len(), 104);
        assert_eq!(EntryReply { attributes }.reply().len(), 128);
        assert_eq!(Opened { file: 1, flags: 0, backing: 0 }.reply().len(), 16);
        assert_eq!(file_system(1, 1, 1).len(), 80);
        let init = InitReply { max_readahead: 0, flags: 0, max_write: 0, stack_depth: 0 };
        assert_eq!(init.reply().len(), 64);
    }

    #[test]
    fn entries_fit_or_are_left_for_the_next_time() {
        let mut entries = Writer::default();
        assert!(directory_entry(&mut entries, 80, 2, 1, libc::S_IFREG, b"four"));
        assert_eq!(entries.0.len(), 32);
        assert!(directory_entry(&mut entries, 80, 2, 1, libc::S_IFREG, b"longername"));
        assert!(!directory_entry(&mut entries, 80, 2, 1, libc::S_IFREG, b"x"));
        assert_eq!(entries.0.len(), 72);
    }
}
