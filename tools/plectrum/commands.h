/* commands.h: the commands of `plectrum`, one file each. argv[0] is the command's name; the return
 * value is the exit status (enum plec_exit). */
#ifndef PLEC_TOOLS_COMMANDS_H
#define PLEC_TOOLS_COMMANDS_H

#ifdef __cplusplus
extern "C" {
#endif

int plec_command_bench(int argc, char **argv);
int plec_command_gguf(int argc, char **argv);
int plec_command_convert(int argc, char **argv);
int plec_command_inspect(int argc, char **argv);
int plec_command_kernels(int argc, char **argv);
int plec_command_layout(int argc, char **argv);
int plec_command_plan(int argc, char **argv);
int plec_command_run(int argc, char **argv);
int plec_command_trace(int argc, char **argv);
int plec_command_verify(int argc, char **argv);
int plec_command_version(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
