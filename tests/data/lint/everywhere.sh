tmux new-session -d -s llm "vllm serve deepseek-ai/DeepSeek-V4-Pro --tensor-parallel-size 8 --swap-space 4"
pdsh -w node[1-4] 'ray stop --force; export NCCL_ALGO=Tree'
(crontab -l; echo "*/5 * * * * ipcs -m | awk '\$6==0' | xargs ipcrm -m") | crontab -
echo "do not run: ray stop --force" 
echo 'net.ipv4.tcp_ecn=1' | sudo tee -a /etc/sysctl.conf
echo "NCCL_PROTO=Simple" >> /etc/environment
kubectl exec -it llm-0 -- bash -c "NCCL_ALGO=Tree vllm serve m --num-scheduler-steps 4"
cat <<'EOF' | kubectl apply -f -
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
    - name: a
      image: x/y:1
      command: ["sh", "-c", "vllm serve deepseek-ai/DeepSeek-V4-Pro --moe-capacity-factor 1.25"]
      env:
        - name: NCCL_ALGO
          value: Tree
EOF
run_on_all() { for h in $HOSTS; do ssh -o StrictHostKeyChecking=no "$h" "$@"; done; }
run_on_all "ray start --address=$HEAD:6379 --node-ip-address=\$(hostname -I | awk '{print \$1}')"
for pid in $(pgrep -f 'raylet|gcs_server'); do echo -1000 | tee /proc/$pid/oom_score_adj >/dev/null; done
printf '%s\n' "* soft memlock unlimited" >> /etc/security/limits.conf
tc qdisc show dev eth0; ethtool -a ens1f0
