/* activation.h: the activations of device/layer.h in f32. No value overflows to NaN on the way:
 * every sigmoid is 1 / (1 + e^-z), which goes to 0 or 1. NaN in gives NaN out. */
#ifndef PLEC_DEVICE_CPU_ACTIVATION_H
#define PLEC_DEVICE_CPU_ACTIVATION_H

#include "device/layer.h"

/* h [n] from n gate and up values of neighbouring tokens; g NULL: the expert has no gate. */
void plec_cpu_activate(float *h, const struct plec_expert_maths *maths, const float *g,
                       const float *u, uint32_t n);
float plec_cpu_sigmoid(float z);

#endif
