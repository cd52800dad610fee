timeout 100 $W tpch --scale $S --devices 1 --no-oracle --runs 1 --clients 1,16,64 --client-seconds 6 > $OUT/cl.txt 2>&1; tail -6 $OUT/cl.txt
