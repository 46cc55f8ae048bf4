/* Preloaded into the user-mode-linux kernel, whose buffer for a process's extended CPU state is smaller than the XSAVE area of
 * newer CPUs. The host's kernel refuses to set a part of that area (ptrace(2), PTRACE_SETREGSET), so the part is laid over
 * the whole as it is, and the whole is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { AREA = 1 << 16 };

typedef long ptrace_function(int, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...) {
	static ptrace_function *next;
	static char area[AREA] __attribute__((aligned(64)));

	va_list arguments;
	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (next == NULL)
		next = (ptrace_function *)dlsym(RTLD_NEXT, "ptrace");
	if ((int)request != PTRACE_SETREGSET || (long)address != NT_X86_XSTATE)
		return next(request, pid, address, data);

	const struct iovec *part = data;
	struct iovec whole = {.iov_base = area, .iov_len = sizeof area};
	if (next(PTRACE_GETREGSET, pid, address, &whole) != 0 || part->iov_len >= whole.iov_len)
		return next(request, pid, address, data);
	memcpy(area, part->iov_base, part->iov_len);
	return next(request, pid, address, &whole);
}
