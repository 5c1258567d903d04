// Which instructions of a program are executed, in the order of their first time: one step after the other, through all
// threads and children that run the same program.
//
//   trace LOW HIGH COMMAND...      from its start
//   trace LOW HIGH -p PID...       processes that run already, until they end or this is told to stop (TERM)
//
// LOW and HIGH, hexadecimal, are where the program's text is. Prints addresses.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

// Whoever is being stepped cannot go on alone: all of it ends with this.
static const long OPTIONS =
    PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
static unsigned long low, high;
static unsigned char *seen;
static volatile sig_atomic_t over;

static void stop(int signal) {
    (void)signal;
    over = 1;
}

static void program_of(pid_t pid, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
}

static void seize(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));) {
        pid_t thread = atoi(entry->d_name);
        if (thread > 0 && ptrace(PTRACE_SEIZE, thread, 0, OPTIONS) == 0) ptrace(PTRACE_INTERRUPT, thread, 0, 0);
    }
    if (threads) closedir(threads);
}

static void begin(char **command) {
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        execv(command[0], command);
        _exit(127);
    }
    int status;
    waitpid(child, &status, WUNTRACED);
    if (ptrace(PTRACE_SEIZE, child, 0, OPTIONS)) exit(1);
    kill(child, SIGCONT);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    low = strtoul(words[1], 0, 16), high = strtoul(words[2], 0, 16);
    seen = calloc(high - low, 1);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, 0);
    char traced[PATH_MAX] = "", program[PATH_MAX];
    if (strcmp(words[3], "-p") == 0) {
        program_of(atoi(words[4]), traced);
        for (int word = 4; word < count; word++) seize(atoi(words[word]));
    } else {
        if (!realpath(words[3], traced)) return 2;
        begin(words + 3);
    }
    while (!over) {
        int status;
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        if (!WIFSTOPPED(status)) continue;
        int signal = WSTOPSIG(status), event = status >> 16, pass = 0;
        if (event == PTRACE_EVENT_EXEC) {
            // What is another program's is not ours to order.
            program_of(pid, program);
            if (strcmp(program, traced)) {
                ptrace(PTRACE_DETACH, pid, 0, 0);
                continue;
            }
        } else if (!event && signal == SIGTRAP) {
            struct user_regs_struct registers;
            if (ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0) {
                unsigned long at = registers.rip;
                if (at >= low && at < high && !seen[at - low]) {
                    seen[at - low] = 1;
                    printf("%lx\n", at);
                }
            }
        } else if (!event) {
            pass = signal;
        }
        ptrace(PTRACE_SINGLESTEP, pid, 0, pass);
    }
    return fflush(stdout) != 0;
}
