/* Lets the query engine of the wheel chdb-core 26.9.0 be a replica: for tests only.
 *
 * The engine in that wheel is clickhouse-local. It opens client ports by itself (SYSTEM START LISTEN), but it has no
 * address at which other replicas may fetch parts, and it takes itself for a program without ZooKeeper. The code for both
 * is in the library; this file makes five changes to the loaded copy in memory, never to the file:
 *
 *   1. Context::getInterserverIOAddress answers with our address, and fills in scheme and credentials. The code that
 *      reads these from a configuration is not in the library; what checks and uses them is.
 *   2., 3. The second HTTP port that is opened serves replicas instead of queries.
 *   4. system.zookeeper exists.
 *   5. Tables of the Kafka engine can be created: clickhouse-local's registry of them believes that the server is ending.
 *
 * The addresses hold for one build alone. So its build id is compared first, then all bytes that will be replaced, and
 * only then is anything written: a library of another build is refused and left as it was.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUILD_ID "bdc4640446f9e58ef835635e38764a5992cd4b3c"

/* Addresses in the library, as `objdump -d` shows them. */
enum {
    GET_ADDRESS = 0x147217c0,    /* Context::getInterserverIOAddress() const -> pair<string, uint16> */
    PADDING = 0x14721908,        /* int3s between two functions: room for a jump within reach of a short call */
    CREATE_CALL = 0x0e9354a8,    /* createHandlerFactory(...) in clickhouse-local's listener for HTTP */
    CREATE_HANDLER = 0x19097340, /* createHandlerFactory(server, configuration, metrics, name, ...) */
    ZOOKEEPER_TABLE = 0x11c96771, /* attachSystemTablesServer: jne to system.zookeeper, and a jmp past it */
    KAFKA_TABLE = 0x1868f728,    /* registry of Kafka tables: je to "Shutdown was called" */
};

/* Offsets in ContextSharedPart. */
enum { HOST = 0x150, PORT = 0x168, SCHEME = 0x170, CREDENTIALS = 0x1b0 };

struct shared_pointer { void *object, *count; };
struct string { char bytes[24]; }; /* libc++: up to 22 characters in place, their number in the last byte */
struct long_string { const char *data; uint64_t size, capacity; }; /* capacity has its highest bit set */
struct credentials { struct string user, password; struct string *begin, *end, *capacity; };

static uintptr_t base, code_begin, code_end;
static char build_id[2 * 20 + 1];
static char address[23];
static uint16_t port;
static struct string no_name[2]; /* one pair of empty user and password: no one has to log in */
static struct credentials anonymous = {.begin = no_name, .end = no_name + 2, .capacity = no_name + 2};
static struct credentials *given = &anonymous;
static char *shared_part; /* the ContextSharedPart, once it is known */

static void assign(void *string, const char *text) {
    memset(string, 0, sizeof(struct string));
    memcpy(string, text, strlen(text));
    ((char *)string)[23] = (char)strlen(text);
}

static void give_credentials(void) { /* without an owner, so that no reader ever frees them */
    if (shared_part != NULL)
        __atomic_store_n((void **)(shared_part + CREDENTIALS), given, __ATOMIC_SEQ_CST);
}

/* From now on the server gives its peers the first of `count` pairs of user and password, and accepts each. 0, or 1
 * where one is too long. What was given before is never freed: a request may still read it. */
int set_credentials(const char *const *texts, size_t count) {
    struct string *pairs = calloc(2 * count, sizeof *pairs);
    struct credentials *made = calloc(1, sizeof *made);
    for (size_t n = 0; n < 2 * count; n++) {
        if (strlen(texts[n]) > 22) return 1;
        assign(&pairs[n], texts[n]);
    }
    *made = (struct credentials){pairs[0], pairs[1], pairs, pairs + 2 * count, pairs + 2 * count};
    given = made;
    give_credentials();
    return 0;
}

static void *own_address(void *answer, char **context) {
    char *shared = *context;
    if (*(void **)(shared + CREDENTIALS) == NULL) {
        assign(shared + SCHEME, "http");
        assign(shared + HOST, address);
        *(uint16_t *)(shared + PORT) = port;
        *(struct shared_pointer *)(shared + CREDENTIALS) = (struct shared_pointer){given, NULL};
        shared_part = shared;
        give_credentials(); /* others may have been given meanwhile */
    }
    assign(answer, address);
    *(uint16_t *)((char *)answer + sizeof(struct string)) = port;
    return answer;
}

typedef struct shared_pointer create_handler(void *, void *, void *, const void *, void *, void *, void *);

/* clickhouse-local calls this once per listen_host, in the order of its configuration. */
static struct shared_pointer create_for_replicas(
    void *server, void *configuration, void *metrics, const void *name, void *e, void *f, void *g) {
    static const char replicas[] = "InterserverIOHTTPHandler-factory";
    static struct long_string interserver = {replicas, sizeof replicas - 1, sizeof replicas | 1ULL << 63};
    static int calls;
    const void *chosen = ++calls == 2 ? (const void *)&interserver : name;
    return ((create_handler *)(base + CREATE_HANDLER))(server, configuration, metrics, chosen, e, f, g);
}

static int find(struct dl_phdr_info *info, size_t size, void *name) {
    (void)size;
    if (strstr(info->dlpi_name, name) == NULL) return 0;
    base = info->dlpi_addr;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[n];
        const ElfW(Nhdr) *note = (const void *)(base + segment->p_vaddr);
        if (segment->p_type == PT_LOAD && segment->p_flags & PF_X) {
            code_begin = segment->p_vaddr;
            code_end = segment->p_vaddr + segment->p_filesz;
        }
        if (segment->p_type != PT_NOTE || note->n_type != NT_GNU_BUILD_ID || note->n_descsz != 20) continue;
        const unsigned char *id = (const unsigned char *)(note + 1) + ((note->n_namesz + 3) & ~3U);
        for (int i = 0; i < 20; i++) sprintf(build_id + 2 * i, "%02x", id[i]);
    }
    return 1;
}

struct change { uintptr_t at; const char *found, *replaced; size_t size; };

static int write_over(uintptr_t at, const void *bytes, size_t size) {
    uintptr_t page = (base + at) & ~4095UL;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
    memcpy((void *)(base + at), bytes, size);
    return mprotect((void *)page, 8192, PROT_READ | PROT_EXEC);
}

static void far_jump(char *to, void *target) { /* jmp *0(%rip), and the address behind it */
    memcpy(to, "\xff\x25\0\0\0\0", 6);
    memcpy(to + 6, &target, sizeof target);
}

/* Change the library whose path contains `name`, before its first query. Replicas reach this one at `host`:`number`.
 * 0, or 1 with the reason in `why` and nothing changed (2: changed in part, the process must end). */
int make_replica(const char *name, const char *host, uint16_t number, char *why, size_t room) {
    char to_address[14], to_create[14], call[5] = "\xe8";
    int32_t distance = PADDING - (CREATE_CALL + (int32_t)sizeof call);
    const struct change changes[] = {
        {GET_ADDRESS, "\x41\x56\x53\x48\x83\xec\x48\x4c\x8b\x36\x49\x0f\xbe\x8e", to_address, 14},
        {PADDING, "\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc\xcc", to_create, 14},
        {CREATE_CALL, "\xe8\x93\x1e\x76\x0a", call, 5},
        {ZOOKEEPER_TABLE, "\x75\x3b\xe9\x6f\x03", "\xeb\x3b\xe9\x6f\x03", 5}, /* jne becomes jmp */
        {KAFKA_TABLE, "\x0f\x84\x7b\x03\x00\x00", "\x66\x0f\x1f\x44\x00\x00", 6}, /* a nop of six bytes */
    };
    const size_t count = sizeof changes / sizeof *changes;

    if (strlen(host) >= sizeof address) return snprintf(why, room, "address %s is too long", host), 1;
    dl_iterate_phdr(find, (void *)name);
    if (base == 0) return snprintf(why, room, "library %s is not loaded", name), 1;
    if (strcmp(build_id, BUILD_ID) != 0)
        return snprintf(why, room, "%s has build id %s, not %s", name, *build_id ? build_id : "unknown", BUILD_ID), 1;
    for (size_t n = 0; n < count; n++)
        if (changes[n].at < code_begin || changes[n].at + changes[n].size > code_end ||
            memcmp((void *)(base + changes[n].at), changes[n].found, changes[n].size) != 0)
            return snprintf(why, room, "unexpected bytes at %#lx of %s", (long)changes[n].at, name), 1;

    strcpy(address, host);
    port = number;
    far_jump(to_address, own_address);
    far_jump(to_create, create_for_replicas);
    memcpy(call + 1, &distance, sizeof distance);
    for (size_t n = 0; n < count; n++)
        if (write_over(changes[n].at, changes[n].replaced, changes[n].size))
            return snprintf(why, room, "memory of %s cannot be written", name), 2;
    return 0;
}
