/* activation.h: the activations of device/layer.h in f32. No value overflows to NaN on the way:
 * every sigmoid is 1 / (1 + e^-z), which goes to 0 or 1. NaN in gives NaN out. A value's result
 * depends on nothing but the value. */
#ifndef PLEC_DEVICE_CPU_ACTIVATION_H
#define PLEC_DEVICE_CPU_ACTIVATION_H

#include "device/cpu/kernel.h"

/* z [n] = sigmoid(z), in place. */
typedef void plec_cpu_sigmoid_function(float *z, size_t n);
plec_cpu_sigmoid_function *plec_cpu_sigmoid_find(enum plec_cpu_set set);

/* h [n] from n gate and up values; g NULL: the expert has no gate. g and u are used up. */
void plec_cpu_activate(float *h, const struct plec_expert_maths *maths, float *g, float *u,
                       size_t n, plec_cpu_sigmoid_function *sigmoid);

#endif
