/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * struct profile <-> the message sysprofd.v1.Profile. Packing is for the daemon, unpacking for the client,
 * which trusts nothing in it: every index is checked (-EBADMSG).
 */
#pragma once

#include "model/profile.h"
#include "sysprofd/v1/profile.pb-c.h"

/* Allocates a message that borrows strings from p: free it with wire_profile_free() before p goes. */
int wire_profile_pack(const struct profile *p, Sysprofd__V1__Profile **ret);
void wire_profile_free(Sysprofd__V1__Profile *m);
int wire_coverage_pack(const struct profile *p, Sysprofd__V1__Coverage **ret);
void wire_coverage_free(Sysprofd__V1__Coverage *m);
int wire_profile_unpack(const Sysprofd__V1__Profile *m, struct profile **ret);
