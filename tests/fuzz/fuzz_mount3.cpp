// SPDX-License-Identifier: Apache-2.0
// MOUNT version 3 and the port mapper's messages. The first byte chooses which.

#include "fuzz.hpp"

#include <verbena/protocols/nfs/wire/portmap.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>

using namespace verbena;
using fuzz::require;

VERBENA_FUZZ_TARGET(mount3)
{
    if (size == 0)
        return 0;
    const auto bytes = fuzz::bytes_of(data + 1, size - 1);
    xdr::decoder in(bytes);
    std::size_t entries = 0;
    switch (data[0] % 7) {
    case 0: {
        nfs::mount3::dirpath args;
        decode(in, args);
        require(fuzz::within(std::as_bytes(std::span(args.path)), bytes));
        break;
    }
    case 1: {
        nfs::mount3::mountres3 res;
        decode(in, res);
        require(res.auth_flavor_count <= res.auth_flavors.size());
        break;
    }
    case 2: {
        nfs::mount3::mount_entry entry;
        while (next(in, entry))
            require(++entries * 12 <= size);
        break;
    }
    case 3: {
        nfs::mount3::export_reader reader(in);
        std::string_view directory, group;
        while (reader.next(directory)) {
            require(++entries * 8 <= size);
            while (reader.next_group(group))
                require(++entries * 8 <= size);
        }
        break;
    }
    case 4: {
        nfs::portmap::mapping entry;
        while (next(in, entry))
            require(++entries * 20 <= size);
        break;
    }
    case 5: {
        nfs::portmap::rpcb entry;
        while (next(in, entry)) {
            require(++entries * 24 <= size);
            (void)nfs::portmap::port_of(entry.addr);
        }
        break;
    }
    default: (void)nfs::portmap::port_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return 0;
}
