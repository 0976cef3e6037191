/* commonhold.h - named shared memory with classical calls: map, unmap, sync, lock, unlock, incore.
 *
 *     ch_object *o = ch_open("/lab/counts", CH_READ | CH_WRITE);
 *     uint32_t *counts = ch_map(NULL, 1 << 30, CH_PROT_READ | CH_PROT_WRITE, CH_SHARED, o, 0);
 *     counts[7]++;
 *     if (ch_sync(counts, 1 << 30)) perror("sync");
 *
 * Link with -lcommonhold. C11 or C++11, Linux.
 *
 * Failure. Functions that give a pointer return NULL, all others -1; errno is set, and ch_last_error() tells
 * the whole story in one line. On success errno is not touched. A refused call has changed nothing. NULL where
 * an argument is needed is EINVAL.
 *
 *   EINVAL        misaligned, empty, out of range; a malformed name; NULL
 *   ENOENT        no such object, directory, pager; nothing is mapped at the address
 *   EEXIST        the name is taken
 *   EACCES        the mode bits, or the way the object was opened, do not allow it
 *   ENOSPC        memory or disk is used up; try again when there is room
 *   EDQUOT        a per-user quota is used up
 *   EMFILE        a stated limit on mappings, locks, open objects or clients
 *   EBUSY         in use
 *   EOPNOTSUPP    the object was not created for this, or this machine cannot do it
 *   EPROTOTYPE    the object has another type
 *   ENODEV        the stored bytes, or the backing file, are gone
 *   EIO           the pager or the storage failed
 *   EBADMSG       stored data is corrupt
 *   ETIMEDOUT     a deadline passed
 *   ECONNREFUSED  no host answers
 *   EPROTO        library and host are of different versions
 *
 * Threads. Every function may be called by any thread at any time; ch_close() ends a handle for all of them.
 * Signal handlers may call none. None is a cancellation point: a thread that is cancelled (pthread_cancel) in the
 * middle of a call ends after it; asynchronous cancellation is not for programs that use the library.
 *
 * Fork. A child sees the same objects at the same addresses and is a client of its own. Handles stay usable.
 * What it has of a mapping can be chosen (ch_inherit). Else one thing is not inherited: private writable mappings of
 * controlled objects (touching them is SIGSEGV).
 *
 * Names are absolute paths in the host's own name space, such as "/lab/counts", in UTF-8. */
#ifndef COMMONHOLD_H
#define COMMONHOLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version --------------------------------------------------------------------------------------------- */

/* Of this header; ch_version() tells the library's. A program that was built with an older header of the same SONAME runs
 * with a newer library. */
#define CH_VERSION_MAJOR 0
#define CH_VERSION_MINOR 1
#define CH_VERSION_PATCH 0
#define CH_VERSION "0.1.0"
/* To compare: #if CH_VERSION_NUMBER >= CH_VERSION_OF(0, 2, 0) */
#define CH_VERSION_OF(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define CH_VERSION_NUMBER CH_VERSION_OF(CH_VERSION_MAJOR, CH_VERSION_MINOR, CH_VERSION_PATCH)

/* ---- The host -------------------------------------------------------------------------------------------- */

/* Nothing needs to be called first: the host is found at first use. It is the one whose state directory the
 * environment variable COMMONHOLD_HOST names, else the system's (/var/lib/commonhold), else the user's own,
 * which is started if need be.
 *
 * ch_connect() does that now, or, with a state directory, chooses another host for all later calls of this
 * process; a named host is never started. Objects that are open and mappings keep the host they have. */
int ch_connect(const char *state_directory);

/* Version of the library, such as "0.1.0". */
const char *ch_version(void);

/* The whole story of the calling thread's last failure, in one line; "" if there was none. It is valid until the
 * thread's next call that fails. */
const char *ch_last_error(void);

/* ---- Objects --------------------------------------------------------------------------------------------- */

/* An open object. */
typedef struct ch_object ch_object;

/* What an object is opened for. Writing includes reading. */
#define CH_READ 1
#define CH_WRITE 2

#define CH_MOVABLE 4 /* with one of them, of a wired object: it may move, and is used under guards; see ch_guard() */

/* Opens an object. */
ch_object *ch_open(const char *name, int access);

/* Where pages come from. */
#define CH_PAGER_ANONYMOUS 0 /* zero until written, kept in memory */
#define CH_PAGER_FILE 1      /* a file, in place: see ch_create_file() */
#define CH_PAGER_EXTERNAL 2  /* a process that serves pager_name: see ch_serve_pager() */

/* What sync promises. */
#define CH_SYNC_PLAIN 0   /* fdatasync; the kernel may also write at any time before */
#define CH_SYNC_ORDERED 1 /* pages reach the pager only by sync, unlock, eviction or the last unmap */
#define CH_SYNC_ATOMIC 2  /* the stored object changes only by sync, by each sync wholly or not at all */

/* What becomes of unsynced pages when the last process that mapped the object was killed. */
#define CH_KEEP 0   /* they stay for the next mapper, who may call ch_revert() */
#define CH_REVERT 1 /* they are dropped */

/* Who sees a write, and when. */
#define CH_LOCAL 0         /* the processes of this host, at once; other hosts cannot map it */
#define CH_STRICT 1        /* everybody, at once: a page has one writer or many readers, on whatever host; as CH_FORWARDING,
                              or with freezable or home_moves as CH_CENTRAL */
#define CH_STRICT_REVERT 2 /* the same; a page whose newest version was lost with a host is the one before */
#define CH_EXPLICIT 3      /* the processes of this host, at once; those of other hosts after a sync */
#define CH_FORWARDING 4    /* strict, scheduled by all hosts that have the object */
#define CH_FORWARDING_REVERT 5
#define CH_CENTRAL 6       /* strict, scheduled by the host on which it was created */
#define CH_CENTRAL_REVERT 7

/* Whether memory (or spill space on disk) is taken at creation. */
#define CH_RESERVE_DEFAULT 0 /* yes for anonymous objects, no for others */
#define CH_RESERVE_YES 1
#define CH_RESERVE_NO 2 /* sparse: memory can run out later, and then an access fails */

/* How an address reaches a page. */
#define CH_PAGED 0         /* by page tables of each process's own */
#define CH_SHARED_TABLES 1 /* by page tables that all processes share: of huge pages, which are all taken at creation */
#define CH_SHARED_TABLES_4K 2 /* the same of pages of 4 KiB, by the kernel module segshm */
#define CH_WIRED 3         /* by pages that are there when it is mapped: no fault ever happens */

/* How to create an object. Begin with CH_OPTIONS_INIT or ch_options_init(), then set what differs. */
typedef struct ch_options {
    size_t struct_bytes;        /* sizeof(ch_options): how later versions know this one */
    uint64_t size_bytes;        /* 0 with a file: the size of the file */
    uint64_t budget_bytes;      /* most memory its frames may take; 0: the host's budget alone */
    const char *pager_name;     /* with CH_PAGER_EXTERNAL */
    const char *description;    /* what is in it, for programs that check it; NULL: nothing */
    int pager;                  /* CH_PAGER_... */
    int sync;                   /* CH_SYNC_... */
    int on_last_death;          /* CH_KEEP, CH_REVERT */
    int reserve;                /* CH_RESERVE_... */
    int controlled;             /* 1: fault service even where plain mapping would do */
    int freezable;              /* 1: ch_sync_frozen() and ch_snapshot() work; first writes cost more */
    uint32_t fault_deadline_ms; /* SIGBUS after so long in a fault; 0: 60,000 if hosts share it, else never */
    uint32_t pager_deadline_ms; /* how long an external pager may take; 0: 30 s */
    uint32_t mode;              /* mode bits, 0600 at first */
    int coherence;              /* CH_LOCAL, CH_STRICT, ... */
    uint64_t page_size_bytes;   /* strict: what goes from host to host at once, 4 KiB (0) to 2 MiB */
    uint32_t replicas;          /* hosts that may be lost without losing what another has read: CH_FORWARDING, or home_moves */
    int home_moves;             /* 1: another host takes a lost home's place; with replicas, or a file others open by the same path */
    int translation;            /* CH_PAGED, CH_SHARED_TABLES or ..._4K: the size is rounded up to a multiple of 2 MiB then */
    int fixed;                  /* 1: it has one address in all processes, where ch_map() maps it (docs/FIXED.md) */
    uint64_t room_bytes;        /* with fixed: it may grow so far; 0: not past its size in whole 2 MiB */
    int ephemeral;              /* 1: its name, and with it the object, goes with its last user: closed, ended or killed */
    uint32_t linger_ms;         /* with ephemeral: so long after that */
} ch_options;

#define CH_OPTIONS_INIT {sizeof(ch_options), 0, 0, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0600, 0, 0, 0, 0, 0, 0, 0, 0, 0}

/* The same at run time. */
void ch_options_init(ch_options *options);

/* Creates an object and opens it for reading and writing. */
ch_object *ch_create(const char *name, const ch_options *options);

/* The same for an object that is an existing file, in place: fd is open for reading and writing, and may be closed
 * afterwards. Sets CH_PAGER_FILE. The file is never deleted by Commonhold. */
ch_object *ch_create_file(const char *name, const ch_options *options, int fd);

/* Creates an object that never has a name: others get it by a message (ch_channel_send_object), and it ends with its last
 * user. It is anonymous, paged and local, and keeps its size. No disk is waited for. */
ch_object *ch_create_nameless(const ch_options *options);

/* Where an object lies that was opened with CH_MOVABLE. */
typedef struct ch_place {
    void *address;
    size_t length;       /* whole pages */
    uint64_t generation; /* another one than before: it may lie elsewhere, or have another size */
} ch_place;

/* From a ch_guard() to the ch_unguard() that belongs to it the object lies where the guard says. No call to the kernel is made,
 * unless it has moved since the guard before. A guard of 2 s stands in the way of who would move the object (EBUSY for him), and
 * of this process's own calls that would. */
int ch_guard(const ch_object *object, ch_place *place);
int ch_unguard(const ch_object *object);

/* Closes a handle. Mappings stay. */
int ch_close(ch_object *object);

/* Copies bytes between a buffer and an object that need not be mapped. A page that cannot be had is an error
 * (EIO) where the host runs with privilege, and SIGBUS, as for a touch, where it does not. */
int ch_read(const ch_object *object, void *buffer, size_t length, uint64_t offset);
int ch_write(const ch_object *object, const void *data, size_t length, uint64_t offset);

/* ---- Mappings -------------------------------------------------------------------------------------------- */

#define CH_PROT_READ 1
#define CH_PROT_WRITE 2 /* includes reading */

/* Who sees writes: one of these two... */
#define CH_SHARED 0x01  /* everybody who maps the object */
#define CH_PRIVATE 0x02 /* nobody else: written pages are copied */
/* ... and any of these. */
#define CH_FIXED 0x10     /* exactly at the address given, or EBUSY */
#define CH_LOCKED_IN 0x20 /* hold and pin each page as it comes in, as ch_lock() does; it keeps nobody out */
#define CH_PREFETCH 0x40  /* begin to bring all pages in, without waiting */
#define CH_IN_THREAD 0x80 /* the faulting thread serves itself where it can */
#define CH_OWN_TABLES 0x100 /* of an object with shared page tables: by tables of this process's own */
#define CH_ANYWHERE 0x800 /* of an object that has one address in all processes: not there; its pointers are of no use then */
/* ... and at most one of these: what a fork child has of it. */
#define CH_INHERIT_SHARE 0    /* the same object: so it is where nothing is said */
#define CH_INHERIT_COPY 0x200 /* the bytes as they are at fork, in memory of its own */
#define CH_INHERIT_NONE 0x400 /* nothing: a touch is SIGSEGV */

/* Maps part of an object. Address (NULL: anywhere) and offset are multiples of the page size, 4096; the length is
 * rounded up to whole pages, and the range must lie in the object as it is now, whoever resized it (its last page
 * may be used in full). The length 0 maps all of it from offset on; ch_object_info() tells the size, for the calls below.
 *
 * Touching a page raises SIGBUS when the object was shrunk below it, when its pager fails, or when its stored
 * bytes are lost. Memory for I/O that bypasses the processor (io_uring fixed buffers, RDMA) must not lie in a
 * mapping of a controlled object: such writes are not noticed. */
void *ch_map(void *address, size_t length, int protection, int sharing, ch_object *object, uint64_t offset);

/* One part of an object, to be mapped together with others. */
typedef struct ch_region {
    void *address; /* in: where, or NULL; out: where it is */
    size_t length; /* in: 0 is all from offset on; then out: how much it is, in whole pages */
    int protection;
    int sharing;
    const ch_object *object;
    uint64_t offset;
} ch_region;

/* Maps all regions, or none. */
int ch_map_many(ch_region *regions, size_t count);

/* The calls below take any range that one or several mappings of this process cover. Address and length are
 * multiples of the page size; only in the last page of a mapping may a range end anywhere. */

/* Unmaps the range: a mapping shrinks, splits or goes. When nobody maps a modified page of a controlled object any
 * more, it is stored. If that fails (ENOSPC), the range is unmapped all the same; the data stays with the host. */
int ch_unmap(void *address, size_t length);

/* Makes the range what is stored, by the mode chosen at creation: the pages of it that any process modified.
 * When it returns 0 they survive power loss; if it fails nothing is lost, and it can be tried again. Of an
 * anonymous object it succeeds, and promises nothing past the host. Of an object that hosts share it fails once, with ENODEV,
 * if newest versions of pages were lost with a host since the object was opened: read again what was written. */
int ch_sync(void *address, size_t length);

/* The same at a true instant: all writers are held for it. Only for freezable objects. */
int ch_sync_frozen(void *address, size_t length);

/* Holds pages: they stay in memory and are not written to their pager until a sync of them or ch_unlock(). Only
 * for controlled objects: the kernel writes the others back whenever it likes (EOPNOTSUPP). This keeps no other thread
 * or process out: a mutex by name does (ch_mutex_open() in commonhold_sync.h). */
int ch_lock(void *address, size_t length);
int ch_unlock(void *address, size_t length);

/* Waiting for changes. A watch is woken when somebody calls ch_notify() for any of its bytes, in whatever process on whatever
 * host, or when a sync of another host changes pages of them here. Plain stores wake nobody. It knows what came since it was
 * made, or since its last wait returned; several changes may be one. So make it, look at the data, and wait only if that is
 * not yet as it should be. It may also be woken where nobody notified: when another host process serves, a host of the
 * cluster is lost, or the object's home is found again. Who may read the object may watch it. The bytes are any within one
 * object, and need not be whole pages. A watch keeps its object open; it is not for a fork child, which makes its own. */
typedef struct ch_watcher ch_watcher;

ch_watcher *ch_watch(void *address, size_t length);

/* A descriptor for poll() and epoll, readable when ch_watch_wait() would return 1 at once. It is the watch's: do not read or
 * close it. */
int ch_watch_fd(const ch_watcher *watcher);

/* Waits so many milliseconds, -1 for ever: 1 when the watch is woken, 0 when the time is over; -1 on failure, with EINTR when
 * a signal handler has run. */
int ch_watch_wait(const ch_watcher *watcher, int timeout_ms);

int ch_watch_close(ch_watcher *watcher);

/* Wakes all who watch any of these bytes. Only for who may write the object (EACCES). Who was woken sees what was written
 * before; with explicit coherence on other hosts, what was synced before. */
int ch_notify(void *address, size_t length);

/* Begins to bring pages in, without waiting. */
int ch_prefetch(void *address, size_t length);

/* What a fork child has of the range from now on: one of CH_INHERIT_... With CH_INHERIT_COPY fork() itself makes the copy, so
 * that it takes as long as that; the child's memory is no object's, and only ch_unmap() and ch_inherit() work on it. Where
 * there is no memory for it the child has nothing there, and says so on standard error. */
int ch_inherit(void *address, size_t length, int how);

/* States of pages, as ch_incore() gives them: one of the first five, and perhaps CH_LOCKED. */
#define CH_INVALID 0 /* past the end of the object */
#define CH_ABSENT 1  /* not in memory */
#define CH_CLEAN 2   /* in memory, and equal to what is stored */
#define CH_DIRTY 3   /* newer than what is stored */
#define CH_LOST 4    /* shared by hosts: its newest version was lost with one; SIGBUS until the object is reverted */
#define CH_LOCKED 0x80
#define CH_STATE(byte) ((byte) & 0x7f)

/* Writes one byte for each page of the range into states. */
int ch_incore(void *address, size_t length, unsigned char *states);

/* ---- Names ----------------------------------------------------------------------------------------------- */

/* What is known of an object or directory. Set struct_bytes to sizeof(ch_info) before each call. Texts that are
 * too long are cut. */
typedef struct ch_info {
    size_t struct_bytes;
    uint64_t id;             /* never used twice */
    uint64_t size_bytes;
    uint64_t resident_bytes; /* memory its frames take */
    uint64_t dirty_bytes;    /* newer than what is stored (controlled objects) */
    uint64_t spilled_bytes;  /* in the host's spill file */
    uint64_t budget_bytes;   /* 0: none of its own */
    uint64_t mappings;       /* of all clients */
    uint64_t opens;          /* clients that have it open */
    int is_directory;        /* then only name, uid, gid and mode mean something */
    int pager;               /* CH_PAGER_... */
    int sync;                /* CH_SYNC_... */
    int on_last_death;
    int controlled;          /* its faults are served by the host */
    int freezable;
    uint32_t uid;
    uint32_t gid;
    uint32_t mode;
    uint32_t unused;
    char name[1032];         /* "" once it was removed while in use */
    char description[4104];
    char file_path[4096];    /* where the backing file was when it was opened */
    char warning[512];       /* something a person should know; "" if nothing */
    char home[264];          /* the host that is its home; "" outside of a cluster */
    uint64_t lost_pages;     /* whose newest version was lost with a host: SIGBUS until the object is reverted */
    uint64_t reverted_pages; /* that went back to an older version for that reason */
    uint64_t loss_generation; /* another number whenever newest versions were lost: compare it with what it was */
    int is_elsewhere;        /* its home is another host */
    int translation;         /* CH_PAGED, CH_SHARED_TABLES, CH_SHARED_TABLES_4K, CH_WIRED */
    uint64_t page_tables;    /* shared: how many map each page at most, two of them the host's; 0: the kernel does not tell */
    uint64_t address;        /* where it is in all processes, if it was created fixed; else 0 */
    uint64_t room_bytes;     /* how many bytes of addresses it has there */
} ch_info;

int ch_stat(const char *name, ch_info *info);
int ch_object_info(const ch_object *object, ch_info *info);

/* Calls each for every entry of a directory, in order, until it returns other than 0. Entries live only during the
 * call. */
typedef int (*ch_list_function)(void *user, const ch_info *entry);
int ch_list(const char *directory, ch_list_function each, void *user);

/* Changes the size. Past a smaller size, mappings raise SIGBUS; nothing else changes. */
int ch_resize(const char *name, uint64_t size_bytes);

/* Says what is in whole pages of an object (bytes offset to offset + length; length 0: all from there on): "int32", "float64",
 * "bytes", or a record such as "{24: 0 int32, 8 float64*2}" (docs/TYPES.md). Hosts of other machine types translate them when
 * they come. Refused while another host than the object's home uses it. */
int ch_tag(const ch_object *object, uint64_t offset, uint64_t length, const char *tag);
int ch_tag_name(const char *name, uint64_t offset, uint64_t length, const char *tag);

/* The tags that the pages of an object have, as text: a line each, of first byte, bytes and tag. As much as there is room for,
 * and a zero, go to the buffer. -1, or how long all of it is. */
int64_t ch_tags(const ch_object *object, char *buffer, size_t room);

/* Creates an object that has the pages of another as they are at one instant (which is freezable and open for writing,
 * or a snapshot itself), and opens it: for reading, or with CH_SNAPSHOT_WRITABLE for reading and writing. mode: its mode
 * bits. length 0: all from offset on, which is that of a page. */
#define CH_SNAPSHOT_WRITABLE 1 /* it may be written; the object does not see that */
#define CH_SNAPSHOT_WHOLE 2    /* its pages are copied soon, also those that nobody writes or touches */
ch_object *ch_snapshot(const ch_object *object, const char *name, int flags, uint32_t mode, uint64_t offset,
                       uint64_t length);

/* The same of a direct object on a file of XFS, Btrfs or bcachefs. The file at path, which is not there yet, becomes a
 * clone of the object's file (FICLONE), with which it shares blocks until either is written, and the new object is on it.
 * CH_SNAPSHOT_WHOLE changes nothing. errno: EEXIST, the file or the name is there; EOPNOTSUPP, no such object or file
 * system. On a failure neither file nor object is there. */
ch_object *ch_snapshot_file(const ch_object *object, const char *name, const char *path, int flags, uint32_t mode,
                            uint64_t offset, uint64_t length);

/* Frees the name now, and the memory when the last mapping goes. A backing file is never deleted. */
int ch_remove(const char *name);

/* Gives an object another name, which must be free. */
int ch_rename(const char *from, const char *to);

/* Mode bits, owner and group, of objects and directories. (uint32_t)-1 leaves owner or group as it is. */
int ch_chmod(const char *name, uint32_t mode);
int ch_chown(const char *name, uint32_t uid, uint32_t gid);

/* Drops what was not synced, whoever wrote it: the object is again what is stored. Whoever may write the object may, however
 * the caller opened it. The number of pages goes to *pages, if that is not NULL. */
int ch_revert(const char *name, uint64_t *pages);

/* ---- Channels -------------------------------------------------------------------------------------------- */

/* A named queue of messages in shared memory (docs/MESSAGES.md). Any number of threads and processes may send and
 * receive; each message is received once. A fork child may go on with its parent's channels. No host is needed to
 * send or receive.
 *
 * Calls that may wait take a time in milliseconds: -1 is for ever, 0 not at all. They return 1, or 0 when the time is
 * over, and -1 on failure, such as EBADMSG: the queue was damaged by a program that may write it. While another
 * thread is in the queue they wait for it, at most ten seconds; EBUSY (with a time of 0) or ETIMEDOUT says which thread
 * that is, maybe a stopped one. To send and receive bytes takes no lock of this process and allocates no memory, unless it
 * fails; with a time of 0 it makes no system call, unless somebody waits for what it does. So an audio callback may. */
typedef struct ch_channel ch_channel;

/* Creates a channel, and opens it. It takes the given number of bytes at once, 16 for each message beside its own; rounded up to
 * a power of two, at least 4096. The translation is CH_PAGED or CH_WIRED (then no page fault ever happens in it). */
ch_channel *ch_channel_create(const char *name, uint64_t capacity_bytes, int translation, uint32_t mode);

/* Opens a channel. Its mode has to allow reading and writing, also to who only receives. */
ch_channel *ch_channel_open(const char *name);

int ch_channel_close(ch_channel *channel);

/* Bytes of the largest message; 0 on failure. */
size_t ch_channel_most_bytes(const ch_channel *channel);

/* Sends a message. The kind is the program's own. */
int ch_channel_send(const ch_channel *channel, uint32_t kind, const void *data, size_t length, int timeout_ms);

/* A message that was received. Begin with CH_MESSAGE_INIT. */
typedef struct ch_message {
    size_t struct_bytes;   /* sizeof(ch_message) */
    size_t length;         /* bytes in the buffer; also of a message that is too long for it */
    uint64_t landing;      /* where a region landed, as ch_channel_post() said; 0: there is none */
    uint64_t landed_bytes; /* how much of it */
    uint32_t kind;
    uint32_t unused;
    ch_object *object;     /* that came with it, open as its sender stated, to be closed; NULL: none */
} ch_message;

#define CH_MESSAGE_INIT {sizeof(ch_message), 0, 0, 0, 0, 0, 0}

/* Receives a message. One that is longer than the buffer is EINVAL, and stays. */
int ch_channel_receive(const ch_channel *channel, ch_message *message, void *buffer, size_t size, int timeout_ms);

/* Lets senders copy a region straight to a part of a wired object of the channel's directory, owner, group and mode, until
 * something has landed there or it is withdrawn. Where several processes receive, one of them may post. */
int ch_channel_post(const ch_channel *channel, const ch_object *object, uint64_t offset, uint64_t length, uint64_t *landing);

/* Takes a landing back (0: all, also those of a receiver that died). A sender that is copying there may still write to it; its
 * message is refused (ENODEV). */
int ch_channel_withdraw(const ch_channel *channel, uint64_t landing);

/* Copies a region to a landing that has room for it, and sends a message about it that holds the data in line. Waits for a
 * landing, too. */
int ch_channel_send_region(const ch_channel *channel, uint32_t kind, const void *data, size_t length, const void *region,
                           size_t region_bytes, int timeout_ms);

/* Sends a message with an object, to be read (CH_READ) or written, too (CH_READ | CH_WRITE): no more than it is open for here. Who
 * receives it has it open, whatever its name and mode are; who sent it may close it at once. */
int ch_channel_send_object(const ch_channel *channel, uint32_t kind, const void *data, size_t length, const ch_object *object,
                           int access, int timeout_ms);

/* Sends a message with part of an object as it is now, by reference: the receiver gets an object of it, to read. Nothing is
 * copied but pages that are written here, or touched there. That takes an object whose writers can be held (freezable), open
 * for writing, and an offset that is a multiple of 4096; else the part is copied once. */
int ch_channel_send_by_reference(const ch_channel *channel, uint32_t kind, const void *data, size_t length,
                                 const ch_object *object, uint64_t offset, uint64_t region_bytes, int timeout_ms);

/* Reads part of a file into an object, which may be another process's wired one, without a buffer in between. What lies at
 * multiples of 4096 in both goes past the page cache, where the file allows it (O_DIRECT): so many bytes are in *direct_bytes,
 * if that is not NULL. *bytes is less than the length where the file ends. Not into controlled objects (EOPNOTSUPP). */
int ch_read_into(int fd, uint64_t file_offset, const ch_object *object, uint64_t offset, uint64_t length, uint64_t *bytes,
                 uint64_t *direct_bytes);

/* ---- Pagers ---------------------------------------------------------------------------------------------- */

/* A pager: the process that supplies and stores the pages of the objects created with its name. Both functions
 * return 0, or an errno that whoever waits for the page is told. They are called one at a time. */
typedef struct ch_pager {
    size_t struct_bytes; /* sizeof(ch_pager) */
    /* Fills the buffer with the object's bytes from offset on. */
    int (*page_in)(void *user, const char *object, uint64_t offset, void *buffer, size_t length);
    /* Stores the data; returning 0 means that it is durable. */
    int (*page_out)(void *user, const char *object, uint64_t offset, const void *data, size_t length);
    void *user; /* given to both */
} ch_pager;

/* Serves as the pager of that name, in the calling thread, until the host closes the connection: then 0. */
int ch_serve_pager(const char *name, const ch_pager *pager);

/* ---- Images ---------------------------------------------------------------------------------------------- */

/* Data with ordinary pointers that has one address in every process: built once in an arena at the addresses that it
 * will have, sealed, and included by any process in microseconds, read-only, with nothing to parse. No host is needed.
 *
 *     struct node { uint64_t key; struct node *left, *right; struct { const char *first; size_t count; } word; };
 *
 *     static const ch_type node;
 *     static const ch_type node_or_null = CH_TYPE_OF(CH_TYPE_POINTER_OR_NULL, node);
 *     static const ch_field fields[] = {
 *         {"key", offsetof(struct node, key), &ch_u64, 0},
 *         {"left", offsetof(struct node, left), &node_or_null, 0},
 *         {"right", offsetof(struct node, right), &node_or_null, 0},
 *         {"word", offsetof(struct node, word), &ch_text, 0},
 *     };
 *     static const ch_type node = CH_TYPE_STRUCT_OF(struct node, fields);
 *
 *     ch_arena *arena = ch_arena_new("words@1.2.0", NULL, NULL, 0, NULL, 0);
 *     struct node *top = ch_arena_take(arena, sizeof *top, _Alignof(struct node));
 *     ...
 *     if (ch_arena_root(arena, "tree", top, 1, &node) || ch_arena_seal(arena)) puts(ch_last_error());
 *     ch_arena_free(arena);
 *
 *     const ch_image *words = ch_include("words@1");          // any process
 *     const struct node *tree = ch_image_root(words, "tree", &node, NULL);
 *
 * Rust and Python read such images, and C reads theirs, if sizes, offsets and names of fields are the same. */
typedef struct ch_arena ch_arena;
typedef struct ch_image ch_image;
typedef struct ch_type ch_type;

enum {
    CH_TYPE_STRUCT = 1,
    CH_TYPE_UNSIGNED = 2,
    CH_TYPE_SIGNED = 3,
    CH_TYPE_FLOAT = 4,
    CH_TYPE_BOOL = 5,            /* one byte, 0 or 1 */
    CH_TYPE_UTF8 = 6,            /* a byte of text in UTF-8 */
    CH_TYPE_POINTER = 7,         /* never null */
    CH_TYPE_POINTER_OR_NULL = 8,
    CH_TYPE_RUN = 9,             /* a pointer, then a size_t: so many values one behind the other */
    CH_TYPE_CHAR = 10,           /* a character of Unicode, 4 bytes: Rust's char, C's char32_t */
    CH_TYPE_ENUM = 11            /* one of some values, of 1, 2, 4 or 8 bytes */
};

typedef struct ch_field {
    const char *name;
    size_t offset;       /* of an enumeration: the value */
    const ch_type *type; /* of an enumeration: NULL */
    size_t count;        /* 0: one; else an array of so many */
} ch_field;

struct ch_type {
    const char *name; /* for messages; it does not count */
    int kind;         /* CH_TYPE_... */
    size_t bytes;
    size_t alignment;
    const ch_type *of; /* what pointers and runs lead to */
    const ch_field *fields; /* of structures; of enumerations their values */
    size_t field_count;
};

#define CH_TYPE_OF(kind, of) \
    {#of, kind, (kind) == CH_TYPE_RUN ? 16 : 8, 8, &(of), NULL, 0}
#ifdef __cplusplus
#define CH_TYPE_STRUCT_OF(type, fields) \
    {#type, CH_TYPE_STRUCT, sizeof(type), alignof(type), NULL, fields, sizeof(fields) / sizeof((fields)[0])}
#else
#define CH_TYPE_STRUCT_OF(type, fields) \
    {#type, CH_TYPE_STRUCT, sizeof(type), _Alignof(type), NULL, fields, sizeof(fields) / sizeof((fields)[0])}
#endif
/* values: an array of ch_field, {"Noun", NOUN, NULL, 0} each. Another value than these is refused at sealing. */
#define CH_TYPE_ENUM_OF(type, values) \
    {#type, CH_TYPE_ENUM, sizeof(type), sizeof(type), NULL, values, sizeof(values) / sizeof((values)[0])}
#define CH_TYPE_SCALAR(name, kind, bytes) {name, kind, bytes, bytes, NULL, NULL, 0}

static const ch_type ch_u8 = CH_TYPE_SCALAR("u8", CH_TYPE_UNSIGNED, 1);
static const ch_type ch_u16 = CH_TYPE_SCALAR("u16", CH_TYPE_UNSIGNED, 2);
static const ch_type ch_u32 = CH_TYPE_SCALAR("u32", CH_TYPE_UNSIGNED, 4);
static const ch_type ch_u64 = CH_TYPE_SCALAR("u64", CH_TYPE_UNSIGNED, 8);
static const ch_type ch_i8 = CH_TYPE_SCALAR("i8", CH_TYPE_SIGNED, 1);
static const ch_type ch_i16 = CH_TYPE_SCALAR("i16", CH_TYPE_SIGNED, 2);
static const ch_type ch_i32 = CH_TYPE_SCALAR("i32", CH_TYPE_SIGNED, 4);
static const ch_type ch_i64 = CH_TYPE_SCALAR("i64", CH_TYPE_SIGNED, 8);
static const ch_type ch_f32 = CH_TYPE_SCALAR("f32", CH_TYPE_FLOAT, 4);
static const ch_type ch_f64 = CH_TYPE_SCALAR("f64", CH_TYPE_FLOAT, 8);
static const ch_type ch_bool = CH_TYPE_SCALAR("bool", CH_TYPE_BOOL, 1);
static const ch_type ch_char32 = CH_TYPE_SCALAR("char32", CH_TYPE_CHAR, 4);
static const ch_type ch_utf8 = CH_TYPE_SCALAR("utf8", CH_TYPE_UTF8, 1);
/* Text: a pointer to its bytes, and their number. */
static const ch_type ch_text = CH_TYPE_OF(CH_TYPE_RUN, ch_utf8);

/* Begins an image, by name and whole version. store: the directory where it will be published; NULL: the first of
 * COMMONHOLD_IMAGES, else /var/lib/commonhold/images for root and the user's own data directory for others.
 * group: NULL, or a name of 1 to 16 letters: images of one group are declared never to be in one process, and share
 * addresses.
 * capacity_bytes: how large it can become (0: 16 GiB; no memory is taken for it). imports: images that it may lead into. */
ch_arena *ch_arena_new(const char *name, const char *store, const char *group, uint64_t capacity_bytes,
                       const ch_image *const *imports, size_t import_count);

/* Memory of the arena, zeroed. */
void *ch_arena_take(ch_arena *arena, size_t bytes, size_t alignment);

/* Makes count values, one behind the other, be found by name. */
int ch_arena_root(ch_arena *arena, const char *name, const void *first, size_t count, const ch_type *type);

/* Follows all pointers from the roots, writes the image and publishes it. A pointer that leads out of the arena and of what
 * it imports is EINVAL, and ch_last_error() tells the way to it; then nothing was published. */
int ch_arena_seal(ch_arena *arena);

/* Frees the arena with its memory, sealed or not. */
void ch_arena_free(ch_arena *arena);

/* Includes the newest version of "words", "words@1", "words@1.2" or "words@1.2.3", with what it leads into. What the process
 * has and fits is the answer; ch_include_newest() looks again. An image stays until the process ends. */
const ch_image *ch_include(const char *name);
const ch_image *ch_include_newest(const char *name);

/* Name and version, such as "words@1.2.0". */
const char *ch_image_name(const ch_image *image);

/* What is found by name: its address, and how many values there are, in *count, if that is not NULL. Another type than it was
 * made with is EPROTOTYPE. */
const void *ch_image_root(const ch_image *image, const char *name, const ch_type *type, size_t *count);

#ifdef __cplusplus
}
#endif

#endif
