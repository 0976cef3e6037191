/* A 32-bit program without a library, which has segments and makes accesses through them.
 *
 * It reads questions from descriptor 0 and writes answers to 1; 2 is the memory. The layout of both
 * is that of program.rs. */

typedef unsigned int u32;

struct question {
    u32 what, entry, at, pages, low, high;
};
struct answer {
    u32 trapped, low, high;
};

enum { MAP, LOAD, UNLOAD, READ, WRITE };
enum { SYS_EXIT = 1, SYS_READ = 3, SYS_WRITE = 4, SYS_MMAP = 90, SYS_MODIFY_LDT = 123, SYS_RT_SIGACTION = 174 };
enum { SIGBUS = 7, SIGSEGV = 11 };
enum { PAGE = 4096, AT_ONCE = PAGE / sizeof(struct question) };

/* Where the memory is mapped: low, as bases have 32 bits. */
#define MEMORY 0x10000000u

static struct question questions[AT_ONCE];
static struct answer answers[AT_ONCE];

static int call(int number, u32 a, u32 b, u32 c, u32 d) {
    int result;
    asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d) : "memory");
    return result;
}

/* Moves a word between a place of ours and an offset of a segment. 1 if that trapped: the handler of
 * the signal, which is `trapped`, goes on here with the stack of before. */
int move_word(u32 selector, u32 offset, u32 *word, int is_write);
void trapped(void);
asm(".text\n"
    "move_word:\n"
    "    movl %esp, stack_before\n"
    "    movl 4(%esp), %eax\n"
    "    movl %eax, %fs\n"
    "    movl 8(%esp), %ecx\n"
    "    movl 12(%esp), %edx\n"
    "    cmpl $0, 16(%esp)\n"
    "    jne 1f\n"
    "    movl %fs:(%ecx), %eax\n"
    "    movl %eax, (%edx)\n"
    "    movl %fs:4(%ecx), %eax\n"
    "    movl %eax, 4(%edx)\n"
    "    jmp 2f\n"
    "1:  movl (%edx), %eax\n"
    "    movl %eax, %fs:(%ecx)\n"
    "    movl 4(%edx), %eax\n"
    "    movl %eax, %fs:4(%ecx)\n"
    "2:  xorl %eax, %eax\n"
    "3:  xorl %ecx, %ecx\n"
    "    movl %ecx, %fs\n"
    "    ret\n"
    "trapped:\n"
    "    movl stack_before, %esp\n"
    "    movl $1, %eax\n"
    "    jmp 3b\n"
    ".local stack_before\n"
    ".comm stack_before, 4, 4\n");

static int map(u32 pages) {
    u32 read_write = 3, shared_fixed = 0x11;
    u32 arguments[6] = { MEMORY, pages * PAGE, read_write, shared_fixed, 2, 0 };
    return call(SYS_MMAP, (u32)arguments, 0, 0, 0) != (int)MEMORY;
}

static int catch_signal(int signal) {
    u32 no_defer = 0x40000000;
    u32 action[5] = { (u32)trapped, no_defer, 0, 0, 0 };
    return call(SYS_RT_SIGACTION, signal, (u32)action, 0, 8);
}

/* Writes an entry of the table of descriptors (struct user_desc). */
static int describe(u32 entry, u32 base, u32 limit, u32 flags) {
    u32 description[4] = { entry, base, limit, flags };
    return call(SYS_MODIFY_LDT, 0x11, (u32)description, sizeof description, 0);
}

static int load(const struct question *asked) {
    u32 is_32bit = 1, read_only = 1 << 3, limit_in_pages = 1 << 4, usable = 1 << 6;
    u32 flags = is_32bit | limit_in_pages | usable | (asked->low ? 0 : read_only);
    return describe(asked->entry, MEMORY + asked->at * PAGE, asked->pages - 1, flags);
}

static int unload(u32 entry) {
    u32 read_only = 1 << 3, not_present = 1 << 5;
    return describe(entry, 0, 0, read_only | not_present);
}

static void answer(const struct question *asked, struct answer *answer) {
    u32 word[2] = { asked->low, asked->high };
    u32 selector = asked->entry << 3 | 7;
    switch (asked->what) {
    case MAP:
        answer->trapped = map(asked->pages) || catch_signal(SIGSEGV) || catch_signal(SIGBUS);
        break;
    case LOAD:
        answer->trapped = load(asked) != 0;
        break;
    case UNLOAD:
        answer->trapped = unload(asked->entry) != 0;
        break;
    default:
        answer->trapped = move_word(selector, asked->at, word, asked->what == WRITE);
    }
    answer->low = word[0];
    answer->high = word[1];
}

void _start(void) {
    for (;;) {
        int bytes = call(SYS_READ, 0, (u32)questions, sizeof questions, 0);
        int count = bytes / (int)sizeof(struct question);
        if (count <= 0)
            call(SYS_EXIT, 0, 0, 0, 0);
        for (int n = 0; n < count; n++)
            answer(&questions[n], &answers[n]);
        call(SYS_WRITE, 1, (u32)answers, count * sizeof(struct answer), 0);
    }
}
