/* bus_error.h: a file that shrinks, or whose disk fails, while it is mapped.
 *
 * Such a read raises SIGBUS where other reads return an error. The handler tells the file and the
 * byte on stderr and leaves with PLEC_EXIT_MACHINE; what a command was writing keeps its temporary
 * name, as after a kill. A SIGBUS that no mapped file explains keeps its default effect.
 */
#ifndef PLEC_TOOLS_BUS_ERROR_H
#define PLEC_TOOLS_BUS_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Installs the handler, for the whole process. Source of file and byte: /proc/self/maps. */
void plec_catch_bus_errors(void);

#ifdef __cplusplus
}
#endif
#endif
